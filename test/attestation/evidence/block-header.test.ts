import { encodeRlp } from 'ethers'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { decodeBlockHeader, HEADER_BYTES_MAX } from '#attestation/evidence/block.ts'
import { BLOCKS } from './vectors.ts'

/** The mainnet's first header; its hash is what every Ethereum client knows as the genesis hash. */
const GENESIS = [
  `0x${'00'.repeat(32)}`,
  '0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347',
  `0x${'00'.repeat(20)}`,
  '0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544',
  '0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421',
  '0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421',
  `0x${'00'.repeat(256)}`,
  '0x0400000000',
  '0x',
  '0x1388',
  '0x',
  '0x',
  '0x11bbe8db4e347b4e8c937c1c8370e4b5ed33adb3db69cbdb7a38e1e50b1b82fa',
  `0x${'00'.repeat(32)}`,
  '0x0000000000000042',
] as const

it.each(BLOCKS)('decodeBlockHeader reads what a chain gave: block $number', (block) => {
  const header = decodeBlockHeader(decodeHex(block.header))
  expect(header.hash).toBe(block.hash)
  expect(header.number).toBe(block.number)
  expect(header.timestamp).toBe(block.timestamp)
  expect(`0x${encodeHex(header.transactionsRoot)}`).toBe(block.transactionsRoot)
  expect(`0x${encodeHex(header.receiptsRoot)}`).toBe(block.receiptsRoot)
})

it('the first header of the mainnet, of 15 fields, is read under its known hash', () => {
  const header = decodeBlockHeader(decodeHex(encodeRlp([...GENESIS])))
  expect(header.hash).toBe('0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3')
  expect([header.number, header.timestamp]).toEqual([0, 0])
})

it('decodeBlockHeader reads headers with further fields, as later forks may have, of any bytes', () => {
  for (let count = 0; count < 12; count++) {
    const later = Array.from({ length: count }, (_, at) => `0x${'00'.repeat(at * 7)}`)
    expect(decodeBlockHeader(decodeHex(encodeRlp([...GENESIS, ...later]))).number).toBe(0)
  }
})

it.each<[string, readonly (string | readonly string[])[], RegExp]>([
  ['14 fields', GENESIS.slice(0, 14), /at least 15 fields, got 14/],
  ['a short parent hash', replaced(0, '0x11'), /parentHash to be 32 bytes/],
  ['a beneficiary of 32 bytes', replaced(2, GENESIS[0]), /beneficiary to be 20 bytes/],
  [
    'a transactions root of 31 bytes',
    replaced(4, `0x${'11'.repeat(31)}`),
    /transactionsRoot to be 32 bytes/,
  ],
  ['a receipts root that is a list', replaced(5, []), /receiptsRoot to be a byte string/],
  ['a bloom of 255 bytes', replaced(6, `0x${'11'.repeat(255)}`), /logsBloom to be 256 bytes/],
  ['a number with a leading zero', replaced(8, '0x0001'), /number to be a number/],
  ['a number of 2^53', replaced(8, '0x20000000000000'), /number to be at most/],
  ['a timestamp of zeros', replaced(11, '0x00'), /timestamp to be a number/],
  ['a nonce of 7 bytes', replaced(14, '0x00000000000042'), /nonce to be 8 bytes/],
  ['a later field that is a list', [...GENESIS, ['0x11']], /later fields to be a byte string/],
])('decodeBlockHeader refuses a malformed header: %s', (_, fields, message) => {
  const encoded = encodeRlp(fields.map((field) => (typeof field === 'string' ? field : [...field])))
  expect(() => decodeBlockHeader(decodeHex(encoded))).toThrow(message)
})

it('decodeBlockHeader refuses what is no list, has bytes after the list or is too long', () => {
  expect(() => decodeBlockHeader(decodeHex('80'))).toThrow(/to be a list/)
  expect(() => decodeBlockHeader(decodeHex(`${encodeRlp([...GENESIS])}00`))).toThrow(
    /after the value/,
  )
  expect(() => decodeBlockHeader(new Uint8Array(HEADER_BYTES_MAX + 1))).toThrow(
    /at most 16384 bytes/,
  )
})

function replaced(
  at: number,
  value: string | readonly string[],
): readonly (string | readonly string[])[] {
  return (GENESIS as readonly (string | readonly string[])[]).with(at, value)
}
