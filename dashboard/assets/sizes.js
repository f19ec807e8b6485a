// Sizes on a slider: powers of two of a GiB, with as many digits as a person would write.
(() => {
    const UNITS = {B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, KB: 1e3, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12};
    const LARGEST = 5, SMALLEST = -10, STEP = 0.25;

    function text(octaves) {
        const gib = 2 ** octaves;
        if (gib >= 1) return `${Math.round(gib * 10) / 10} GiB`;
        const mib = gib * 1024;
        return `${mib >= 10 ? Math.round(mib) : Math.round(mib * 10) / 10} MiB`;
    }

    function octaves(size) {
        const [, number, unit] = /^\s*([\d.]+)\s*([A-Za-z]*)\s*$/.exec(size ?? "") ?? [];
        const bytes = Number(number) * (unit === "" ? 1 : UNITS[unit]);
        if (!(bytes > 0)) return null;
        const exact = Math.log2(bytes / 2 ** 30);
        return Math.min(LARGEST, Math.max(SMALLEST, Math.round(exact / STEP) * STEP));
    }

    window.dashMantineFunctions = {...window.dashMantineFunctions, sizeOfSlider: text};
    window.dash_clientside = {...window.dash_clientside};
    // What we wrote on each side and have not seen come back: it comes as a change of its own, perhaps after the
    // person's next one, which it must not undo.
    const written = {};

    function comesBack(values, value) {
        const at = values.indexOf(value);
        values.splice(0, at + 1);
        return at >= 0;
    }

    window.dash_clientside.sizes = {
        same(slid, size) {
            const {no_update, callback_context: {triggered, inputs_list: [{id}]}} = window.dash_clientside;
            const ours = written[JSON.stringify(id)] ??= {slid: [], size: []};
            const changed = {slid: false, size: false};
            for (const {prop_id} of triggered) changed[prop_id.includes('"slider"') ? "slid" : "size"] = true;
            const bySlider = changed.slid && !comesBack(ours.slid, slid);
            const byText = changed.size && !comesBack(ours.size, size);
            const at = octaves(size);
            if (at === slid) ours.slid = [], ours.size = [];
            else if (bySlider) return [no_update, (ours.size.push(text(slid)), text(slid))];
            else if (byText && at !== null) return [(ours.slid.push(at), at), no_update];
            return [no_update, no_update];
        },
    };
})();
