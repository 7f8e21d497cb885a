import {
  beyondSchema,
  type FieldRow,
  NO_BOOLEAN,
  NO_INTEGER,
  NO_NUMBER,
  NO_TEXT,
  refuse,
  requiredTextRow,
} from './field-row.ts'

const NODE_NAMES = ['abc', 'x'.repeat(40)]
const NO_NODE_NAMES = [
  ...refuse('string_too_short', '', 'ab'),
  ...refuse('string_too_long', 'x'.repeat(41)),
  ...beyondSchema(refuse('string_pattern_mismatch', '   ', 'a\nb')),
  ...NO_TEXT,
]

/** Interface, 2.7, and facts: a new node. */
export const CREATE_NODE_ROWS: readonly FieldRow[] = [
  {
    field: 'node_name',
    accepts: NODE_NAMES,
    rejects: [...refuse('missing', undefined), ...refuse('string_type', null), ...NO_NODE_NAMES],
  },
]

const nodeIdRow: FieldRow = { ...requiredTextRow('node_id', ''), accepts: [] }

/** Facts: a change of a node. */
export const UPDATE_NODE_ROWS: readonly FieldRow[] = [
  nodeIdRow,
  { field: 'node_name', accepts: [undefined, null, ...NODE_NAMES], rejects: NO_NODE_NAMES },
  { field: 'is_archived', accepts: [undefined, null, true, false], rejects: NO_BOOLEAN },
]

const NO_COUNT = [...refuse('greater_than_equal', -1), ...NO_INTEGER]
const NO_AMOUNT = [...refuse('greater_than_equal', -0.5), ...NO_NUMBER]

/** A required integer or null. */
const countRow = (field: string): FieldRow => ({
  field,
  accepts: [null, 0, 8],
  rejects: [...refuse('missing', undefined), ...NO_COUNT],
})

/** A required number or null. */
const speedRow = (field: string): FieldRow => ({
  field,
  accepts: [null, 0, 940.5],
  rejects: [...refuse('missing', undefined), ...NO_AMOUNT],
})

/** Interface, 2.7, and facts: hardware of a node. */
export const NODE_INFO_ROWS: readonly FieldRow[] = [
  nodeIdRow,
  {
    field: 'gpu_model',
    accepts: [null, 'NVIDIA'],
    rejects: [...refuse('missing', undefined), ...refuse('string_too_short', ''), ...NO_TEXT],
  },
  countRow('vram'),
  countRow('gpu_count'),
  requiredTextRow('cpu_model', 'AMD'),
  countRow('cpu_count'),
  {
    field: 'ram',
    accepts: [0, 64_000],
    rejects: [...refuse('missing', undefined), ...refuse('int_type', null), ...NO_COUNT],
  },
  { field: 'power_limit', accepts: [undefined, null, 0, 450], rejects: NO_COUNT },
  speedRow('network_download_speed'),
  speedRow('network_upload_speed'),
  requiredTextRow('operating_system', 'Linux'),
  {
    field: 'version',
    accepts: [undefined, null, '0.0.19'],
    rejects: [...refuse('string_too_short', ''), ...NO_TEXT],
  },
]

/** Facts: a benchmark. */
export const BENCHMARK_ROWS: readonly FieldRow[] = [
  nodeIdRow,
  requiredTextRow('model_name', 'm'),
  {
    field: 'tokens_per_second',
    accepts: [0, 55.5],
    rejects: [...refuse('missing', undefined), ...refuse('float_type', null), ...NO_AMOUNT],
  },
]
