import { describe, expect, it } from 'vitest'
import { weighAssembly, weighJson, weighString } from '#enclave/log/weigh-json.ts'

describe('weighString', () => {
  it.each([
    ['', 0],
    ['abc', 3],
    ['abcä', 8],
    ['🙂', 4],
    ['日本', 6],
  ])('weighString takes %j for %d bytes', (text, bytes) => expect(weighString(text)).toBe(bytes))
})

describe('weighJson', () => {
  it('weighJson weighs text and bytes alike, wide text twice', () => {
    const none = { containers: 0, members: 0, items: 0 }
    expect(weighJson('"abcd"', none)).toBe(24)
    expect(weighJson(Buffer.from('"abcd"'), none)).toBe(24)
    expect(weighJson('"äcd"', none)).toBe(48)
    expect(weighJson(Buffer.from('"äcd"'), none)).toBe(48)
  })
})

describe('weighAssembly', () => {
  it('weighAssembly counts maps as objects, at every depth, with names and texts', () => {
    const kept = {
      members: new Map([['id', 'x']]),
      choices: new Map([[0, { list: [1, [null], 'yz'] }]]),
      last: 3,
    }
    const { size, bytes } = weighAssembly(kept)
    expect(size).toEqual({ containers: 6, members: 6, items: 4 })
    const units =
      'members'.length + 'choices'.length + 'last'.length + 'id'.length + 'list'.length + 3
    const { bytes: unitBytes } = weighAssembly('x')
    expect(bytes - weighJson('', size)).toBe(units * unitBytes)
  })
})
