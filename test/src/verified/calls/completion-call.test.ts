import { describe, expect, it } from 'vitest'
import { ValidationError } from '#src/api/errors.ts'
import { validate } from '#src/api/validation.ts'
import { chooseCredential, credentialHeaders } from '#src/verified/calls/completion-call.ts'
import { SCRIPTED_PROVIDERS } from '../../../support/scripted-enclave.ts'

const operators = new Map([['openai', 'sk-operator']])
const choose = (model: string, callerCredential: string | null, credentials = operators) =>
  chooseCredential({ model, callerCredential }, SCRIPTED_PROVIDERS, credentials)

describe('chooseCredential', () => {
  it("chooseCredential takes the caller's own before the operator's", () => {
    expect(choose('ft:gpt-4o:org', 'sk-caller')).toEqual({
      provider: 'openai',
      credential: 'sk-caller',
      isOperators: false,
    })
  })

  it("chooseCredential takes the operator's for the provider of the model", () => {
    expect(choose('gpt-4o', null)).toEqual({
      provider: 'openai',
      credential: 'sk-operator',
      isOperators: true,
    })
  })

  it('chooseCredential takes none for a provider on plain http', () => {
    expect(choose('demo/echo', null)).toEqual({
      provider: 'demo',
      credential: null,
      isOperators: false,
    })
  })

  it('chooseCredential refuses a call for which there is none', () => {
    expect(() => choose('gpt-4o', null, new Map())).toThrow(
      expect.objectContaining({ code: 'provider_credential_missing', status: 403 }),
    )
  })

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
})

const credentialOf = (header: string | undefined) =>
  validate('header', credentialHeaders, { 'fine-tune-authorization': header })[
    'fine-tune-authorization'
  ]

describe('the credential of a caller', () => {
  it.each(['sk-1', 'Bearer sk-1', 'bearer sk-1', 'BEARER   sk-1', ' sk-1 '])(
    'the credential of a caller is read from %j',
    (header) => {
      expect(credentialOf(header)).toBe('sk-1')
    },
  )

  it('the credential of a caller may begin with the letters of the scheme', () => {
    expect(credentialOf('bearerkey')).toBe('bearerkey')
  })

  it('the credential of a caller is none without the header', () =>
    expect(credentialOf(undefined)).toBeUndefined())

  it.each(['', 'Bearer', 'Bearer ', 'two words', 'Bearer a b', 'ümlaut', 'x'.repeat(4097)])(
    'the credential of a caller is refused: %j',
    (header) => {
      expect(() => credentialOf(header)).toThrow(ValidationError)
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
})
