// The address of the page: it says what is asked; another scenario is another page. Each question has an entry in the
// history, so that Back undoes the last change: the page is then drawn as its address says.
(() => {
    let drawn = true; // and nothing was asked since: what the address says may be written otherwise, but is no change
    for (const event of ["popstate", "_dashprivate_pushstate"]) window.addEventListener(event, () => { drawn = true; });

    const sorted = (query) => {
        const pairs = new URLSearchParams(query);
        pairs.sort();
        return String(pairs);
    };

    function draw(search) {
        drawn = true;
        window.dash_clientside.set_props("_pages_location", {search});
    }

    // Dash draws a page anew where it knows of another address; it does not know of those that `keep` wrote.
    window.addEventListener("popstate", () => {
        const known = window.dash_component_api?.getLayout("_pages_location")?.props ?? {};
        const {pathname, search} = window.location;
        if (known.pathname === pathname && known.search === search) draw(search);
    });

    window.dash_clientside = {...window.dash_clientside, address: {
        keep(query) {
            const {no_update} = window.dash_clientside, {pathname, search} = window.location;
            if (query === undefined || query === null) return no_update;
            if (sorted(query) !== sorted(search))
                window.history[drawn ? "replaceState" : "pushState"](window.history.state, "", pathname + query);
            drawn = false;
            return no_update;
        },
        open(base) {
            draw("?base=" + encodeURIComponent(base));
            return window.dash_clientside.no_update;
        },
    }};
})();
