import { expect, it } from 'vitest'
import { CborError, decodeCbor } from '#attestation/nitro/cbor.ts'

const bytesOf = (hex: string) => new Uint8Array(Buffer.from(hex.replaceAll(' ', ''), 'hex'))
const decode = (hex: string, indefiniteTop = false) =>
  decodeCbor(bytesOf(hex), { indefinite: indefiniteTop ? 'top' : 'none' })

function faultOf(hex: string, indefiniteTop = false): unknown {
  try {
    return decode(hex, indefiniteTop)
  } catch (error) {
    expect(error).toBeInstanceOf(CborError)
    return error instanceof CborError
      ? { fault: error.fault, offset: error.offset, path: error.path }
      : error
  }
}

it.each([
  ['00', 0],
  ['17', 23],
  ['1818', 24],
  ['18ff', 255],
  ['190100', 256],
  ['19ffff', 65_535],
  ['1a00010000', 65_536],
  ['1affffffff', 2 ** 32 - 1],
  ['1b0000000100000000', 2n ** 32n],
  ['1b001fffffffffffff', 2n ** 53n - 1n],
  ['1b0020000000000000', 2n ** 53n],
  ['1bffffffffffffffff', 2n ** 64n - 1n],
  ['20', -1],
  ['3822', -35],
  ['3bffffffffffffffff', -(2n ** 64n)],
  ['f4', false],
  ['f5', true],
  ['f6', null],
  ['60', ''],
  ['63e282ac', '€'],
  ['80', []],
  ['82008101', [0, [1]]],
])('the CBOR decoder accepts the bytes %s, which decode to %s', (hex, value) => {
  expect(decode(hex)).toEqual({ value, end: hex.length / 2 })
})

it('byte strings and maps are decoded as such, whatever their keys are called', () => {
  const hex = 'a3 00 4101 69 5f5f70726f746f5f5f 01 61 61 a0'
  expect(decode(hex).end).toBe(bytesOf(hex).length)
  expect(decode(hex).value).toEqual(
    new Map<unknown, unknown>([
      [0, Uint8Array.of(1)],
      ['__proto__', 1],
      ['a', new Map()],
    ]),
  )
})

it('the CBOR decoder stops after the item and leaves what follows to its caller', () => {
  expect(decode('00ff').end).toBe(1)
})

it('the outermost map alone may have indefinite length, and only when that is asked for', () => {
  expect(decode('bf00f6ff', true).end).toBe(4)
  expect(faultOf('bf00f6ff')).toMatchObject({ fault: 'indefinite', offset: 0 })
  expect(faultOf('9f00ff', true)).toMatchObject({ fault: 'indefinite', offset: 0 })
  expect(faultOf('bf00bfffff', true)).toMatchObject({ fault: 'indefinite', offset: 2, path: [0] })
  expect(faultOf('bf009fffff', true)).toMatchObject({ fault: 'indefinite', offset: 2, path: [0] })
})

it('a fault of CBOR says where it is', () => {
  expect(faultOf('a1 61 61 82 00 a1 20 f7')).toEqual({
    fault: 'simple',
    offset: 7,
    path: ['a', 1, -1],
  })
})

// nitro-cases/envelope-cases.ts has documents with each of these faults.
it.each([
  ['', 'truncated'],
  ['18', 'truncated'],
  ['1a000000', 'truncated'],
  ['4201', 'truncated'],
  ['6261', 'truncated'],
  ['8200', 'truncated'],
  ['a100', 'truncated'],
  ['bf00', 'truncated'],
  ['bf', 'truncated'],
  ['9affffffff00', 'truncated'],
  ['190018', 'not_minimal'],
  ['a1180000', 'not_minimal'],
  ['d80000', 'not_minimal'],
  ['3d', 'reserved'],
  ['3f', 'reserved'],
  ['d9d9f700', 'tag'],
  ['f97e00', 'float'],
  ['f3', 'simple'],
  ['f814', 'simple'],
  ['f8ff', 'simple'],
  ['bf00ff', 'stray_break'],
  ['a1f600', 'key_type'],
  ['a1f90000', 'key_type'],
  ['a1a000', 'key_type'],
  ['a2616100616100', 'duplicate_key'],
  ['bf616100616100ff', 'duplicate_key'],
  ['a21bffffffffffffffff001bffffffffffffffff00', 'duplicate_key'],
  ['62c080', 'invalid_utf8'],
  ['64f4908080', 'invalid_utf8'],
  ['a161ff00', 'invalid_utf8'],
])('the CBOR decoder refuses the bytes %s as %s', (hex, fault) => {
  expect(faultOf(hex, true)).toMatchObject({ fault })
})

it('keys of a map that only look the same count as different', () => {
  expect(decode('a2 61 61 00 64 efbbbf61 00').end).toBe(10)
  expect(decode('a2 01 00 61 31 00').end).toBe(6)
})

it('the CBOR decoder accepts nesting of 16 and refuses deeper nesting', () => {
  expect(decode(`${'81'.repeat(16)}00`).end).toBe(17)
  expect(faultOf(`${'81'.repeat(17)}00`)).toMatchObject({ fault: 'too_deep', offset: 16 })
  expect(faultOf(`${'a100'.repeat(17)}00`)).toMatchObject({ fault: 'too_deep', offset: 32 })
})

it('a map of 8000 keys is decoded in less than 200 ms of processor time', () => {
  const pairs = Array.from({ length: 8000 }, (_, index) =>
    Buffer.of(0x19, (index + 256) >> 8, index & 0xff, 0),
  )
  const bytes = new Uint8Array(Buffer.concat([Buffer.of(0xb9, 8000 >> 8, 8000 & 0xff), ...pairs]))
  const before = process.cpuUsage()
  expect(decodeCbor(bytes).end).toBe(bytes.length)
  expect(process.cpuUsage(before).user).toBeLessThan(200_000)
})
