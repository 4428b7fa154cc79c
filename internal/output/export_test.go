package output

const WidestColumn = widestColumn
