import { beyondSchema, type FieldRow, refuse } from './field-row.ts'

const UUID = '00000000-0000-4000-8000-000000000000'
const REPEATED = ['1', '2']

/**
 * Interface, part 4 (rule 1) and part 8: the query of the history list; this service chose the
 * default of filter. Tests with records check the cursor of a record.
 */
export const HISTORY_ROWS: readonly FieldRow[] = [
  {
    field: 'limit',
    accepts: [undefined, '1', '100', '1000'],
    rejects: [
      ...refuse('greater_than_equal', '0', '-1'),
      ...refuse('less_than_equal', '1001'),
      ...refuse('int_parsing', '1.5', 'x', '', 'null', '1e1', ' 1'),
      ...refuse('string_type', REPEATED),
    ],
    default: 100,
  },
  {
    field: 'cursor',
    accepts: [undefined],
    rejects: [
      ...refuse('uuid_parsing', 'x', '', `${UUID}0`, UUID.replaceAll('-', '')),
      // There is no record with this id.
      ...beyondSchema(refuse('value_error', UUID)),
      ...refuse('string_type', REPEATED),
    ],
  },
  {
    field: 'filter',
    accepts: [undefined, 'all', 'mine'],
    rejects: refuse('literal_error', 'theirs', '', 'MINE', REPEATED),
    default: 'mine',
  },
]

/** Path of one record: its hash, 64 hex digits. */
export function hashRows(hash: string): readonly FieldRow[] {
  return [
    {
      field: 'hash',
      accepts: [hash, hash.toUpperCase(), `0x${hash}`],
      rejects: refuse(
        'string_pattern_mismatch',
        ...['xyz', hash.slice(1), `${hash}0`, `${hash.slice(1)}g`, `${hash}/`, `${hash}\n`, '…'],
      ),
    },
  ]
}

/** Query that names a node. */
export const NODE_QUERY_ROWS: readonly FieldRow[] = [
  {
    field: 'node_id',
    accepts: [],
    rejects: [
      ...refuse('missing', undefined),
      ...refuse('string_too_short', ''),
      ...refuse('string_type', REPEATED),
    ],
  },
]

/** Query that names a node and a model. */
export const BENCHMARK_QUERY_ROWS: readonly FieldRow[] = [
  ...NODE_QUERY_ROWS,
  {
    field: 'model',
    accepts: [],
    rejects: [
      ...refuse('missing', undefined),
      ...refuse('string_too_short', ''),
      ...refuse('string_type', REPEATED),
    ],
  },
]
