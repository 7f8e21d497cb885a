import { beyondSchema, type FieldRow, type Rejection, refuse, refuseAt } from './field-row.ts'

/** The longest name of a schema, with every kind of character that is allowed. */
const NAME_OF_64 = 'aZ09_-'.padEnd(64, 'x')

const withSchema = (members: object) => ({
  type: 'json_schema',
  json_schema: { name: 'n', schema: { type: 'object' }, ...members },
})

/** Refuses a member in the object of a JSON schema. */
const refuseMember = (
  member: string,
  type: string,
  ...values: readonly unknown[]
): readonly Rejection[] =>
  refuseAt(['json_schema', member], type, ...values.map((value) => withSchema({ [member]: value })))

/** Interface, 2.1, and the object of a JSON schema of 2.4 and part 8. */
export const RESPONSE_FORMAT_ROW: FieldRow = {
  field: 'response_format',
  accepts: [
    undefined,
    null,
    { type: 'text' },
    { type: 'json_object' },
    withSchema({}),
    ...[
      { name: NAME_OF_64 },
      { name: 'n' },
      { schema: null },
      { description: 'd', strict: true },
    ].map(withSchema),
    withSchema({ description: null, strict: null }),
    withSchema({ strict: false }),
  ],
  rejects: [
    ...refuse('dict_type', 'text', 5, []),
    ...refuseAt(['type'], 'missing', {}),
    ...refuseAt(['type'], 'literal_error', { type: 'xml' }, { type: null }),
    ...beyondSchema(refuseAt(['json_schema'], 'missing', { type: 'json_schema' })),
    ...refuseAt(['json_schema'], 'dict_type', { type: 'json_schema', json_schema: 'x' }),
    ...refuseMember('name', 'missing', undefined),
    ...refuseMember('name', 'string_type', null, 5),
    ...refuseMember(
      'name',
      'string_pattern_mismatch',
      '',
      `${NAME_OF_64}x`,
      'a b',
      'é',
      'a.b',
      'n\n',
    ),
    ...refuseMember('schema', 'missing', undefined),
    ...refuseMember('schema', 'dict_type', 'object', []),
    ...refuseMember('description', 'string_type', 5),
    ...refuseMember('strict', 'bool_type', 'yes'),
  ],
}
