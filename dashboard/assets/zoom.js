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

    window.dash_clientside = {...window.dash_clientside, zoom: {
        seen,
        // With what is seen: whether the critical path is shown. Drawing anew would hide it again.
        one(moved) {
            const {no_update, callback_context: {triggered}} = window.dash_clientside, now = seen(moved);
            if (now === null) return no_update;
            const graph = document.getElementById(triggered[0].prop_id.split(".")[0]);
            const line = graph.querySelector(".js-plotly-plot").data.find(({uid}) => uid === "critical path");
            return {seen: now, path: line?.visible === true};
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
            return others.length || drawn.length === 1 ? now : no_update;
        },
    }};
})();
