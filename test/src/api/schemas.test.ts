import { Ajv2020 } from 'ajv/dist/2020.js'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { createKey } from '#src/accounts/key-routes.ts'
import { boundedInteger, schemaOf } from '#src/api/form-schema.ts'
import { boundedText, described, jsonSchemaOf } from '#src/api/schemas.ts'
import { chatRequest } from '#src/chat/chat-request.ts'
import { embeddingRequest } from '#src/embeddings/embedding-request.ts'
import { nodeInfo } from '#src/nodes/protocol/registration.ts'

const ajv = new Ajv2020({
  strict: true,
  allowUnionTypes: true,
  strictTypes: false,
  strictRequired: false,
})

const BOUNDED = z.looseObject({
  size: boundedInteger({ min: 0, max: 9 }),
  count: boundedInteger({ min: 1, max: 4 }).nullish(),
  items: schemaOf({ kind: 'list', items: { kind: 'text' }, min: 1, max: 2 }),
  text: boundedText({ min: 2, max: 4 }),
})
const BOUNDED_BASE = { size: 0, items: ['a'], text: 'ab' }

const CHAT_BASE = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
const EMBEDDING_BASE = { model: 'm', input: 'x' }
const KEY_BASE = { name: 'k' }
const NODE_BASE = {
  node_id: 'n',
  gpu_model: null,
  vram: null,
  gpu_count: null,
  cpu_model: 'c',
  cpu_count: 1,
  ram: 1,
  network_download_speed: 1.5,
  network_upload_speed: null,
  operating_system: 'o',
}

/** Values to put in place of one member of a valid value; undefined leaves it out. */
const VALUES = [
  undefined,
  null,
  true,
  0,
  1,
  -1,
  2,
  3,
  1.5,
  4,
  5,
  20,
  21,
  128,
  129,
  2 ** 31,
  1e12 + 1,
  2 ** 53,
  '',
  'a',
  'ab',
  'abcde',
  'none',
  'required',
  'base64',
  'inference',
  [],
  ['a'],
  ['a', 'b', 'c'],
  ['a', 'b', 'c', 'd', 'e'],
  [1],
  [1, 'a'],
  [[1]],
  [[]],
  [''],
  {},
  { a: 1 },
  { a: 'b' },
  { include_usage: true },
  { type: 'text' },
  { type: 'json_schema' },
  { type: 'x' },
  { type: 'function', function: { name: 'f' } },
  [{ type: 'function', function: { name: '' } }],
  [{ role: 'user' }],
  [{ role: 'user', content: [{ type: 'text', text: 'a' }] }],
  [{ role: 'user', content: [{ type: 'text' }] }],
  [{ role: 'user', content: 1 }],
  [{ role: 'assistant', tool_calls: [{ id: 'a' }] }],
  [{ role: 'assistant' }],
  [{ role: 'x' }],
  'x'.repeat(512),
  'x'.repeat(513),
  Array.from({ length: 2_049 }, () => 'a'),
]

it.each<[string, z.ZodType, Readonly<Record<string, unknown>>]>([
  ['bounded values', BOUNDED, BOUNDED_BASE],
  ['a chat completion', chatRequest, CHAT_BASE],
  ['embeddings', embeddingRequest, EMBEDDING_BASE],
  ['a key', createKey, KEY_BASE],
  ["a node's hardware", nodeInfo, NODE_BASE],
])(
  'a schema documents what it validates, at and beyond the bounds of each member: %s',
  (_, schema, base) => {
    const json = jsonSchemaOf(schema)
    const isDocumented = ajv.compile(json)
    expect(isDocumented(base)).toBe(true)
    let refusals = 0
    for (const member of Object.keys(json.properties as object))
      for (const value of VALUES) {
        const changed = JSON.parse(JSON.stringify({ ...base, [member]: value }))
        const { success, error } = schema.safeParse(changed)
        // What JSON Schema could say of two members together is said in words instead.
        const isTogether =
          error?.issues.some(({ path, message }) => TOGETHER.test(`${path.length} ${message}`)) ??
          false
        if (isTogether) continue
        refusals += success ? 0 : 1
        expect([member, value, isDocumented(changed)]).toEqual([member, value, success])
      }
    expect(refusals).toBeGreaterThan(Object.keys(json.properties as object).length * 10)
  },
)

/** With the depth of the member. */
const TOGETHER = /Set this only when|^[2-9] Field required|name each scope once|white space alone/

it('jsonSchemaOf takes what a schema is described as, in whatever it is part of', () => {
  const schema = described(z.unknown(), () => ({ type: 'string', format: 'colour' }))
  expect(jsonSchemaOf(z.object({ a: schema.nullish() }))).toEqual({
    type: 'object',
    properties: { a: { anyOf: [{ type: 'string', format: 'colour' }, { type: 'null' }] } },
  })
})

const text = boundedText({ min: 2, max: 4 })
const faultOf = (value: unknown) => {
  const [issue] = text.safeParse(value).error?.issues ?? []
  return issue?.code === 'custom' ? issue.params?.type : issue?.code
}

it.each(['ab', 'abcd', 'a b', '🦊🦊🦊🦊', 'é\u0301'])('boundedText takes the text %j', (value) => {
  expect(text.parse(value)).toBe(value)
})

it.each([
  ['', 'string_too_short'],
  ['a', 'string_too_short'],
  ['🦊', 'string_too_short'],
  ['abcde', 'string_too_long'],
  ['🦊🦊🦊🦊🦊', 'string_too_long'],
  ['x'.repeat(1_000_000), 'string_too_long'],
  ['a\0b', 'string_pattern_mismatch'],
  ['a\nb', 'string_pattern_mismatch'],
  ['a\u009bb', 'string_pattern_mismatch'],
  ['a\ud800b', 'string_pattern_mismatch'],
  ['   ', 'string_pattern_mismatch'],
  [7, 'invalid_type'],
  [null, 'invalid_type'],
])('boundedText refuses the text %j: %s', (value, type) => {
  expect(faultOf(value)).toBe(type)
})
