import { describe, expect, it } from 'vitest'
import { ValidationError } from '../../../src/api/errors.ts'
import { parseProviderCredential } from '../../../src/verified/provider-credential.ts'

describe('parseProviderCredential', () => {
  it.each(['sk-1', 'Bearer sk-1', 'bearer sk-1', 'BEARER   sk-1', ' sk-1 '])('takes %j', (header) => {
    expect(parseProviderCredential(header)).toBe('sk-1')
  })

  it('takes a key that begins with the letters of the scheme', () => {
    expect(parseProviderCredential('bearerkey')).toBe('bearerkey')
  })

  it('gives null without the header', () => expect(parseProviderCredential(undefined)).toBeNull())

  it.each(['', 'Bearer', 'Bearer ', 'two words', 'Bearer a b', 'ümlaut', 'x'.repeat(4097)])(
    'refuses %j',
    (header) => {
      expect(() => parseProviderCredential(header)).toThrow(ValidationError)
    },
  )

  it('does not repeat a refused credential', () => {
    try {
      parseProviderCredential('Bearer SECRET WORDS')
      expect.unreachable()
    } catch (error) {
      expect(JSON.stringify(error)).not.toContain('SECRET')
    }
  })
})
