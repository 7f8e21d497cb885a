import { expect, it } from 'vitest'
import { validate } from '#src/api/validation.ts'
import { chooseCredential, credentialHeaders } from '#src/verified/calls/completion-call.ts'
import { SCRIPTED_PROVIDERS } from '../../../support/scripted-enclave.ts'

const operators = new Map([['openai', 'sk-operator']])
const choose = (model: string, callerCredential: string | null, credentials = operators) =>
  chooseCredential({ model, callerCredential }, SCRIPTED_PROVIDERS, credentials)

it('chooseCredential refuses a model that no provider serves, without repeating it', () => {
  expect(() => choose('other-model', 'sk-caller')).toThrow(
    expect.objectContaining({
      code: 'unsupported_model',
      status: 404,
      message: expect.not.stringContaining('other'),
    }),
  )
})

it('chooseCredential never gives one provider the key of another', () => {
  expect(() => choose('gpt-4o', null, new Map([['demo', 'sk-demo']]))).toThrow()
  expect(choose('demo/echo', null).credential).toBeNull()
})

const credentialOf = (header: string | undefined) =>
  validate('header', credentialHeaders, { 'fine-tune-authorization': header })[
    'fine-tune-authorization'
  ]

it.each(['sk-1', 'Bearer sk-1', 'bearer sk-1', 'BEARER   sk-1', ' sk-1 '])(
  'the credential of a caller is read from %j',
  (header) => {
    expect(credentialOf(header)).toBe('sk-1')
  },
)

it('a refused credential is not repeated', () => {
  try {
    credentialOf('Bearer SECRET WORDS')
    expect.unreachable()
  } catch (error) {
    expect(JSON.stringify(error)).not.toContain('SECRET')
  }
})
