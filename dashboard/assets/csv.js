// Cells and heads of a table's CSV: before a text that a spreadsheet would take for a formula stands a quote.
(() => {
    const plain = (value, formula) => typeof value === "string" && new RegExp(formula).test(value) ? `'${value}` : value;

    window.dashAgGridFunctions = {
        ...window.dashAgGridFunctions,
        plainCell: (params, formula) => plain(params.value, formula),
        plainHead: (params, formula) => plain(params.column.getColDef().headerName, formula),
    };
})();
