import { describe, expect, it } from 'vitest'
import { countTokens, splitTokens } from '#src/local/demo/choices.ts'

describe('splitTokens', () => {
  it.each([
    ['', []],
    ['Hello world', ['Hello', ' world']],
    ['demonstrations!', ['demonstr', 'ations', '!']],
    ['a  b\n', ['a', ' ', ' b', '\n']],
    ['né🙂x', ['né', '🙂', 'x']],
    ['\u0000\ud800', ['\u0000', '\ud800']],
  ])('splitTokens splits the text %j', (text, tokens) => {
    expect(splitTokens(text)).toEqual(tokens)
    expect(splitTokens(text).join('')).toBe(text)
    expect(countTokens(text)).toBe(tokens.length)
  })
})
