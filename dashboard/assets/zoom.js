// What is seen of a figure after plotly told of a change: [from, to], "all", or nothing where it told of something else.
// What else it tells (its size, its colours) must not ask the server: a question that comes after the one of a zoom makes
// Dash drop the answer of that.
(() => {
    function seen(moved) {
        if (!moved) return null;
        if (moved["xaxis.autorange"]) return "all";
        const ends = moved["xaxis.range"] || [moved["xaxis.range[0]"], moved["xaxis.range[1]"]];
        return ends[0] === undefined ? null : [...ends];
    }

    // The server is asked what is seen once nothing has moved for a moment: the wheel turns many times.
    const PAUSE_MS = 200, waiting = {};

    function ask(store, data) {
        clearTimeout(waiting[store]);
        waiting[store] = setTimeout(() => window.dash_clientside.set_props(store, {data}), PAUSE_MS);
    }

    // Plotly zooms with the wheel, where it would take that from the page: it gets the wheel with Ctrl alone, which is
    // also how browsers tell of two fingers that move apart.
    document.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && event.target.closest?.(".timeline")) event.stopPropagation();
    }, {capture: true, passive: true});

    // Keys in a timeline that has the focus: how long what is seen is then, and by which part of that it moves.
    const KEYS = {"+": [0.5, 0], "=": [0.5, 0], "-": [2, 0], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25], 0: [Infinity, 0]};

    function moved({range, minallowed, maxallowed, r2l, l2r}, [longer, by]) {
        const [begin, end, least, most] = [...range, minallowed, maxallowed].map((at) => r2l(at));
        const length = Math.min(longer * (end - begin), most - least), middle = (begin + end) / 2 + by * length;
        const from = Math.min(Math.max(middle - length / 2, least), most - length);
        return [from, from + length].map((at) => l2r(at));
    }

    document.addEventListener("keydown", (event) => {
        const drawn = event.target.closest?.(".timeline")?.querySelector(".js-plotly-plot"), how = KEYS[event.key];
        if (!drawn || !how || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        window.Plotly.relayout(drawn, {"xaxis.range": moved(drawn._fullLayout.xaxis, how)});
    });

    window.dash_clientside = {...window.dash_clientside, zoom: {
        seen,
        // With what is seen: whether the critical path is shown. Drawing anew would hide it again.
        one(moved) {
            const {no_update, callback_context: {triggered}} = window.dash_clientside, now = seen(moved);
            if (now === null) return no_update;
            const id = triggered[0].prop_id.split(".")[0], {data} = document.getElementById(id).querySelector(".js-plotly-plot");
            ask(`${id}-seen`, {seen: now, path: data.find(({uid}) => uid === "critical path")?.visible === true});
            return no_update;
        },
        // Zooming into one figure zooms into the others; those that follow say nothing new.
        together() {
            const {no_update, callback_context: {triggered}} = window.dash_clientside;
            const now = triggered.map(({value}) => seen(value)).find((one) => one !== null);
            if (now === undefined) return no_update;
            const drawn = [...document.querySelectorAll("#compare-timelines .js-plotly-plot")];
            const others = drawn.filter(({layout: {xaxis: {range, autorange}}}) =>
                now === "all" ? !autorange : range[0] !== now[0] || range[1] !== now[1]);
            for (const other of others)
                window.Plotly.relayout(other, now === "all" ? {"xaxis.autorange": true} : {"xaxis.range": [...now]});
            if (others.length || drawn.length === 1) ask("compare-seen", now);
            return no_update;
        },
    }};
})();
