package output

const WidestColumn = widestColumn

var Columns = columns
