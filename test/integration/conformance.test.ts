import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PLAIN_CHAT_ROWS } from './conformance/chat-rows.ts'
import { walkChat } from './conformance/chat-walk.ts'
import { ENDPOINTS, type Endpoint } from './conformance/endpoints.ts'
import { INTERFACE, tableOf } from './conformance/interface-document.ts'
import { walkMedia } from './conformance/media-walk.ts'
import { walkNodes } from './conformance/node-walk.ts'
import { walkRecords } from './conformance/record-walk.ts'
import { expectFields, expectRefusal } from './conformance/reply-checks.ts'
import { COMPLETION_FIELDS, RECORD_FIELDS, VERIFIED_FIELDS } from './conformance/reply-fields.ts'
import { openStage, type Stage } from './conformance/stage.ts'
import { callOf, walkFields } from './conformance/walk-fields.ts'

let opened: Stage | null = null

function stage(): Stage {
  if (opened === null) throw new TypeError('expected the stage to be open')
  return opened
}

beforeAll(async () => {
  opened = await openStage()
})
afterAll(async () => {
  await opened?.close()
})

/** Bodies that are not JSON objects, each with its fault. */
const NO_OBJECTS = [
  ['', [], 'missing'],
  ['{', [1], 'json_invalid'],
  ['{"a":1,}', [7], 'json_invalid'],
  ["{'a':1}", [1], 'json_invalid'],
  ['{} {}', [3], 'json_invalid'],
  ['[]', [], 'dict_type'],
  ['"x"', [], 'dict_type'],
  ['5', [], 'dict_type'],
  ['null', [], 'dict_type'],
  ['{"a":1,"a":2}', ['a'], 'duplicate_key'],
] as const

/** The smallest valid request. */
const requestOf = (endpoint: Endpoint) => callOf(endpoint, endpoint.request?.(stage().known) ?? {})

describe.each(ENDPOINTS)('part 4: $method $path', (endpoint) => {
  it('the endpoint answers 200 with every field', async () => {
    expectFields(await stage().api.call(requestOf(endpoint)), endpoint.reply)
  })

  it(`the endpoint needs ${endpoint.isKeyed ? 'a' : 'no'} key (part 5), and its documentation says so`, async () => {
    const { api } = stage()
    const scopes = endpoint.scope === null ? [] : [endpoint.scope]
    expect(api.operation(endpoint).security).toEqual(
      endpoint.isKeyed ? [{ APIKeyHeader: scopes }] : [],
    )
    const without = await api.call({ ...requestOf(endpoint), key: null })
    if (!endpoint.isKeyed) expect(without.status).toBe(200)
    else {
      expectRefusal(without, 401, 'authorization_missing')
      expectRefusal(
        await api.call({ ...requestOf(endpoint), key: 'wrong' }),
        401,
        'invalid_credentials',
      )
    }
  })

  it(`the endpoint takes keys for ${endpoint.scope ?? 'whatever'}, and no others`, async () => {
    const { api, keys } = stage()
    for (const [scope, key] of Object.entries(keys)) {
      const reply = await api.call({ ...requestOf(endpoint), key })
      if (endpoint.scope === null || scope === endpoint.scope) expect(reply.status).toBe(200)
      else expectRefusal(reply, 403, 'insufficient_scope')
    }
  })
})

describe.each(ENDPOINTS.filter(({ rows }) => rows !== undefined))(
  'fields of $section: $method $path',
  (endpoint) => {
    it('the fields of the endpoint are taken and refused as they should be, each with every value', async () => {
      const { api, known } = stage()
      expect(await walkFields({ api, known, endpoint })).toEqual([])
    })

    it('the fields of the endpoint are documented with their defaults', () => {
      const { api, known } = stage()
      const rows = Object.values(endpoint.rows?.(known) ?? {}).flat()
      const wanted = rows.filter((row) => row.default !== undefined)
      const documented = wanted.map(({ field }) => [field, api.defaultOf(endpoint, field)])
      expect(documented).toEqual(wanted.map((row) => [row.field, row.default]))
    })
  },
)

const JSON_ENDPOINTS = ENDPOINTS.filter(({ method, isForm }) => method !== 'GET' && isForm !== true)

describe.each(JSON_ENDPOINTS)('part 4, rule 4: $method $path', (endpoint) => {
  it.each(NO_OBJECTS)(
    'the endpoint refuses %j, which is not a JSON object',
    async (text, loc, type) => {
      const headers = { 'content-type': 'application/json' }
      const body = new TextEncoder().encode(text)
      const reply = await stage().api.call({ ...requestOf(endpoint), body, headers })
      const { detail } = reply.value as { readonly detail: readonly object[] }
      const fault = { loc: ['body', ...loc], type, msg: expect.any(String) }
      expect([reply.status, detail[0]]).toEqual([422, fault])
    },
  )

  it('the endpoint refuses a body whose content type is not JSON', async () => {
    const headers = { 'content-type': 'text/plain' }
    const reply = await stage().api.call({ ...requestOf(endpoint), headers })
    expectRefusal(reply, 415, 'unsupported_media_type')
  })
})

walkChat(stage)
walkRecords(stage)
walkMedia(stage)
walkNodes(stage)

describe.runIf(INTERFACE.isMet)(INTERFACE.title('the interface itself'), () => {
  it('the endpoints that are walked are those in part 4 of the interface, and no others', () => {
    const wanted = tableOf('## 4. Endpoints').map(([method, path, auth]) => [
      method,
      path,
      auth === 'key',
    ])
    expect(ENDPOINTS.map(({ method, path, isKeyed }) => [method, path, isKeyed])).toEqual(wanted)
  })

  it('the fields that are walked are those in 2.1 of the interface, and no others', () => {
    const walked = new Set(PLAIN_CHAT_ROWS.map(({ field }) => field))
    expect([...walked]).toEqual(tableOf('### 2.1').map(([field]) => field))
  })

  it.each([
    ['### 2.2', COMPLETION_FIELDS],
    ['### 2.3', VERIFIED_FIELDS],
    ['### 2.4', RECORD_FIELDS],
  ])('every field in the table of %s of the interface is looked for', (heading, fields) => {
    const names = tableOf(heading).flatMap(([cell = '']) => cell.split(', '))
    expect(names.length).toBeGreaterThan(4)
    const looked = new Set(Object.keys(fields).map((field) => field.split('.')[0]))
    expect(names.filter((name) => !looked.has(name))).toEqual([])
  })
})
