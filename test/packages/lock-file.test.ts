import { describe, expect, it } from 'vitest'
import { isSameLock } from '#packages/lock-file.ts'

const lock = (packages: object) => JSON.stringify({ lockfileVersion: 3, packages })
const a = { version: '1.0.0', integrity: 'sha512-a' }
const platform = { os: 'linux', cpu: 'x64' }
const optional = { ...a, optional: true, os: ['darwin'] }
const here = { ...optional, os: ['linux'], cpu: ['x64'] }

describe('two lock files', () => {
  it.each([
    ['the same packages', { a }, { a }, true],
    ['an optional package more', { a }, { a, b: optional }, true],
    ['an optional package fewer', { a, b: optional }, { a }, true],
    ['an optional package more for this platform', { a }, { a, b: here }, false],
    ['an optional package fewer for this platform', { a, b: here }, { a }, false],
    ['an optional package more for any platform', { a }, { a, b: { ...a, optional: true } }, false],
    ['another package more', { a }, { a, b: a }, false],
    ['another version', { a }, { a: { ...a, version: '1.0.1' } }, false],
    ['other bytes', { a: optional }, { a: { ...optional, integrity: 'sha512-b' } }, false],
  ])('two lock files are compared by what they install: %s', (_, one, other, isSame) => {
    expect(isSameLock(lock(one), lock(other), platform)).toBe(isSame)
  })

  it('a text that is not a lock file equals no lock file', () => {
    expect(isSameLock('', '', platform)).toBe(false)
    expect(isSameLock('{}', '{}', platform)).toBe(false)
  })
})
