// The address of the page: it says what is asked; another scenario is another page.
window.dash_clientside = {...window.dash_clientside, address: {
    keep(query) {
        if (query !== undefined && query !== null && query !== window.location.search)
            window.history.replaceState(window.history.state, "", window.location.pathname + query);
        return window.dash_clientside.no_update;
    },
    open(base) {
        window.dash_clientside.set_props("_pages_location", {search: "?base=" + encodeURIComponent(base)});
        return window.dash_clientside.no_update;
    },
}};
