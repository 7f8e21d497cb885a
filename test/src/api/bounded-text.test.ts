import { describe, expect, it } from 'vitest'
import { boundedText } from '../../../src/api/bounded-text.ts'

const text = boundedText({ min: 2, max: 4 })
const faultOf = (value: unknown) => {
  const [issue] = text.safeParse(value).error?.issues ?? []
  return issue?.code === 'custom' ? issue.params?.type : issue?.code
}

describe('boundedText', () => {
  it.each(['ab', 'abcd', 'a b', '🦊🦊🦊🦊', 'é\u0301'])('takes %j', (value) => {
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
  ])('refuses %j: %s', (value, type) => {
    expect(faultOf(value)).toBe(type)
  })

  it('takes no text where none is asked for, and lets it be empty', () => {
    expect(boundedText({ min: 0, max: 4 }).parse('')).toBe('')
  })
})
