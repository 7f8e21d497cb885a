import { describe, expect, it } from 'vitest'
import { ValidationError } from '../../../src/api/errors.ts'
import { validate } from '../../../src/api/validation.ts'
import { credentialHeaders } from '../../../src/verified/provider-credential.ts'

const credentialOf = (header: string | undefined) =>
  validate('header', credentialHeaders, { 'fine-tune-authorization': header })['fine-tune-authorization']

describe('the credential of a caller', () => {
  it.each(['sk-1', 'Bearer sk-1', 'bearer sk-1', 'BEARER   sk-1', ' sk-1 '])('takes %j', (header) => {
    expect(credentialOf(header)).toBe('sk-1')
  })

  it('takes a key that begins with the letters of the scheme', () => {
    expect(credentialOf('bearerkey')).toBe('bearerkey')
  })

  it('is none without the header', () => expect(credentialOf(undefined)).toBeUndefined())

  it.each(['', 'Bearer', 'Bearer ', 'two words', 'Bearer a b', 'ümlaut', 'x'.repeat(4097)])(
    'refuses %j',
    (header) => {
      expect(() => credentialOf(header)).toThrow(ValidationError)
    },
  )

  it('does not repeat a refused credential', () => {
    try {
      credentialOf('Bearer SECRET WORDS')
      expect.unreachable()
    } catch (error) {
      expect(JSON.stringify(error)).not.toContain('SECRET')
    }
  })
})
