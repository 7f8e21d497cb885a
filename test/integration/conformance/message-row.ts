import { beyondSchema, type FieldRow, refuse, refuseAt } from './field-row.ts'

const HI = { role: 'user', content: 'hi' }
const CALL = { name: 'f', arguments: '{}' }
const TOOL_CALL = { id: 'c', type: 'function', function: CALL }
const PARTS = [
  { type: 'text', text: 'hi' },
  { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
]

/**
 * Interface, 2.1: content, role, name and function_call of each message, and the members that a
 * role requires.
 */
const MESSAGES_ROW: FieldRow = {
  field: 'messages',
  accepts: [
    ...['developer', 'system', 'user', 'assistant'].map((role) => [{ role, content: 'hi' }]),
    [
      HI,
      { role: 'assistant', content: null, function_call: CALL },
      { role: 'function', name: 'f', content: '1' },
    ],
    [
      HI,
      { role: 'assistant', tool_calls: [TOOL_CALL] },
      { role: 'tool', tool_call_id: 'c', content: '1' },
    ],
    [{ ...HI, name: 'me' }],
    [{ ...HI, name: null, function_call: null }],
    [{ role: 'user', content: PARTS }],
    [{ role: 'user', content: '' }],
  ],
  rejects: [
    ...refuse('missing', undefined),
    ...refuse('list_type', null, 'hi', 5, {}),
    ...refuse('too_short', []),
    ...refuseAt([0], 'dict_type', [1], [null], ['hi'], [[]]),
    ...refuseAt([1, 'role'], 'missing', [HI, { content: 'hi' }]),
    ...refuseAt([0, 'role'], 'literal_error', [{ ...HI, role: 'king' }], [{ ...HI, role: null }]),
    ...refuseAt([0, 'content'], 'string_type', [{ ...HI, content: 5 }], [{ ...HI, content: {} }]),
    ...refuseAt([0, 'content', 0, 'text'], 'missing', [{ ...HI, content: [{ type: 'text' }] }]),
    ...refuseAt([0, 'name'], 'string_type', [{ ...HI, name: 5 }]),
    ...refuseAt([0, 'function_call'], 'dict_type', [{ ...HI, function_call: 'f' }]),
    ...refuseAt([0, 'function_call', 'arguments'], 'missing', [
      { ...HI, function_call: { name: 'f' } },
    ]),
    ...refuseAt([0, 'function_call', 'name'], 'missing', [
      { ...HI, function_call: { arguments: '' } },
    ]),
    ...refuseAt([0, 'tool_calls', 0, 'type'], 'literal_error', [
      { role: 'assistant', tool_calls: [{ ...TOOL_CALL, type: 'tool' }] },
    ]),
    ...beyondSchema([
      ...refuseAt([0, 'content'], 'missing', [{ role: 'user' }], [{ role: 'user', content: null }]),
      ...refuseAt([0, 'tool_call_id'], 'missing', [{ role: 'tool', content: '1' }]),
      ...refuseAt([0, 'name'], 'missing', [{ role: 'function', content: '1' }]),
    ]),
  ],
}

const OTHER_PART = [{ ...HI, content: [{ type: 'smell' }] }]

/** For plain calls: a node cannot understand a content part of another type. */
export const PLAIN_MESSAGES_ROW: FieldRow = {
  ...MESSAGES_ROW,
  rejects: [
    ...MESSAGES_ROW.rejects,
    ...refuseAt([0, 'content', 0, 'type'], 'literal_error', OTHER_PART),
  ],
}

/** For verified calls: providers accept the parts that they gave out. */
export const VERIFIED_MESSAGES_ROW: FieldRow = {
  ...MESSAGES_ROW,
  accepts: [...MESSAGES_ROW.accepts, OTHER_PART],
}
