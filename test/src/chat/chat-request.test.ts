import { expect, it } from 'vitest'
import { ValidationError } from '#src/api/errors.ts'
import { chatRequest, providersRequestWith } from '#src/chat/chat-request.ts'
import { validateBody } from '../../support/validate-body.ts'

// What each member may be: test/enclave/protocol/chat-form.test.ts, for the enclave and for here.

const minimal = { model: 'demo/echo', messages: [{ role: 'user', content: 'hello' }] }
const encode = (value: unknown) => Buffer.from(JSON.stringify(value))

/** The places of the faults, from the message's first part on, and their types. */
function faultsOf(form: Parameters<typeof validateBody>[0], part: unknown): readonly string[] {
  try {
    const messages = [{ role: 'user', content: [part] }]
    validateBody(form, encode({ ...minimal, messages }))
    return []
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error
    return error.detail.map(({ loc, type }) => `${loc.slice(5).join('.')} ${type}`)
  }
}

it.each([
  [{}, { isStream: false, includesUsage: false }],
  [
    { stream: true, stream_options: { include_usage: true } },
    { isStream: true, includesUsage: true },
  ],
  [
    { stream: true, stream_options: {} },
    { isStream: true, includesUsage: false },
  ],
  [
    { stream: null, stream_options: null },
    { isStream: false, includesUsage: false },
  ],
])('a chat request with %j is read as %j', (members, read) => {
  const body = encode({ ...minimal, ...members })
  expect(validateBody(chatRequest, body)).toMatchObject({ model: 'demo/echo', ...read })
})

it('a chat request with several faults is refused with all of them, without their values', () => {
  const body = encode({ ...minimal, temperature: 2.5, n: 'SECRET' })
  expect(() => validateBody(chatRequest, body)).toThrow(
    expect.objectContaining({
      detail: [
        { loc: ['body', 'n'], msg: 'Input should be a valid integer', type: 'int_type' },
        {
          loc: ['body', 'temperature'],
          msg: 'Input should be less than or equal to 2',
          type: 'less_than_equal',
        },
      ],
    }),
  )
})

it.each<[string, object, readonly string[], readonly string[]]>([
  ['of a known type', { type: 'text', text: 't' }, [], []],
  // What providers give out can be sent back.
  ['of an unknown type', { type: 'thinking', thinking: [] }, ['type literal_error'], []],
  ['of an inherited name', { type: 'constructor' }, ['type literal_error'], []],
  ['without a type', { text: 't' }, ['type missing'], ['type missing']],
  ['of no type', { type: 7 }, ['type literal_error'], ['type string_type']],
  ['whose text is none', { type: 'text', text: 7 }, ['text string_type'], ['text string_type']],
])('a part of content %s is refused by nodes and providers as each should', (...part) => {
  const [, content, byNodes, byProviders] = part
  expect(faultsOf(chatRequest, content)).toEqual(byNodes)
  expect(faultsOf(providersRequestWith({}), content)).toEqual(byProviders)
})
