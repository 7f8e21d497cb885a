import { describe, expect, it } from 'vitest'
import { base64FormOf } from '#attestation/evidence/bundle-forms.ts'
import { formOf, formsOf } from '#attestation/json/forms.ts'

const forms = formsOf('invalid_thing', 'thing: ')
const base64Of = base64FormOf(forms.invalid)

describe('formsOf', () => {
  it('formsOf gives each value that has its form', () => {
    expect(forms.membersOf({ a: 1, b: 2 }, 'it', ['a', 'b'])).toEqual({ a: 1, b: 2 })
    expect(forms.arrayOf([1, 2], 'it', { min: 1, max: 2 })).toEqual([1, 2])
    expect(forms.countOf(2 ** 53 - 1, 'it')).toBe(2 ** 53 - 1)
    expect(forms.textOf('', 'it')).toBe('')
    expect(forms.textOf('ab', 'it', formOf(/^ab$/))).toBe('ab')
    expect(forms.hexOf('00ff', 'it', 2)).toBe('00ff')
    expect(base64Of('AP8=', 'it', 2)).toBe('AP8=')
  })

  it.each([
    ['a member too many', () => forms.membersOf({ a: 1, b: 2 }, 'it', ['a']), 'an object of a'],
    ['no object', () => forms.objectOf([], 'it'), 'an object'],
    [
      'too long an array',
      () => forms.arrayOf([1, 2], 'it', { min: 0, max: 1 }),
      'an array of 0 to 1',
    ],
    ['no array', () => forms.arrayOf({}, 'it'), 'an array'],
    [
      'a count beyond 2^53-1',
      () => forms.countOf(2 ** 53, 'it'),
      'a whole number from 0 to 2^53-1',
    ],
    ['no text', () => forms.textOf(1, 'it'), 'a string'],
    ['another text', () => forms.textOf('b', 'it', formOf(/^a$/)), 'of the form ^a$'],
    ['hex in upper case', () => forms.hexOf('00FF', 'it', 2), '4 lower-case hex digits'],
    [
      'base64 of a byte too many',
      () => base64Of('AP8=', 'it', 1),
      'standard base64 of 1 to 1 bytes',
    ],
  ])('formsOf refuses %s with its code and says what was expected', (_, read, expectation) => {
    expect(read).toThrow(
      expect.objectContaining({
        code: 'invalid_thing',
        message: `thing: expected it to be ${expectation}`,
      }),
    )
  })
})
