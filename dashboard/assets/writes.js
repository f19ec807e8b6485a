// What an answer writes into other elements: pairs of an id and properties, all at once.
window.dash_clientside = {...window.dash_clientside, writes: {
    write(pairs) {
        const {no_update, set_props} = window.dash_clientside;
        for (const [id, properties] of pairs ?? []) set_props(id, properties);
        return no_update;
    },
}};
