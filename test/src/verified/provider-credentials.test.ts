import { describe, expect, it } from 'vitest'
import { chooseCredential } from '../../../src/verified/provider-credentials.ts'
import { SCRIPTED_PROVIDERS } from '../../support/scripted-enclave.ts'

const operators = new Map([['openai', 'sk-operator']])
const choose = (model: string, callerCredential: string | null, credentials = operators) =>
  chooseCredential({ model, callerCredential }, SCRIPTED_PROVIDERS, credentials)

describe('chooseCredential', () => {
  it("takes the caller's own before the operator's", () => {
    expect(choose('ft:gpt-4o:org', 'sk-caller')).toEqual({
      provider: 'openai',
      credential: 'sk-caller',
      isOperators: false,
    })
  })

  it("takes the operator's for the provider of the model", () => {
    expect(choose('gpt-4o', null)).toEqual({
      provider: 'openai',
      credential: 'sk-operator',
      isOperators: true,
    })
  })

  it('takes none for a provider on plain http', () => {
    expect(choose('demo/echo', null)).toEqual({ provider: 'demo', credential: null, isOperators: false })
  })

  it('refuses a call for which there is none', () => {
    expect(() => choose('gpt-4o', null, new Map())).toThrow(
      expect.objectContaining({ code: 'provider_credential_missing', status: 403 }),
    )
  })

  it('refuses a model that no provider serves, without repeating it', () => {
    expect(() => choose('other-model', 'sk-caller')).toThrow(
      expect.objectContaining({
        code: 'unsupported_model',
        status: 404,
        message: expect.not.stringContaining('other'),
      }),
    )
  })

  it('never gives one provider the key of another', () => {
    expect(() => choose('gpt-4o', null, new Map([['demo', 'sk-demo']]))).toThrow()
    expect(choose('demo/echo', null).credential).toBeNull()
  })
})
