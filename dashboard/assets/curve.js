// The curve of bucket sizes grows: its points are kept beyond the figure, and the next ones are asked for until it is done.
window.dash_clientside = {...window.dash_clientside, curve: {
    grow(points) {
        const {no_update, set_props} = window.dash_clientside;
        if (!points) return no_update;
        set_props("update-kept", {data: points});
        if (!points.done) set_props("update-next", {data: [points.of, points.update_s.length]});
        return no_update;
    },
}};
