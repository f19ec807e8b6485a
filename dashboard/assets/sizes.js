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
    window.dash_clientside.sizes = {
        same(slid, size) {
            const {no_update, callback_context} = window.dash_clientside;
            if (callback_context.triggered_id?.part === "slider")
                return [no_update, octaves(size) === slid ? no_update : text(slid)];
            const at = octaves(size);
            return [at === null || at === slid ? no_update : at, no_update];
        },
    };
})();
