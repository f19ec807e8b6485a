// What controls do by themselves: a click into a choice that one searches marks its text, so that typing replaces it.
document.addEventListener("focusin", ({target}) => {
    if (target.matches?.(".mantine-Select-input:not([readonly])")) target.select();
});
