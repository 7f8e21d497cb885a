import { keccak256 } from 'ethers'
import { expect, it } from 'vitest'
import { encodeTransaction } from '#src/chain/encode-transaction.ts'

/*
 * Transactions of public chains, as their endpoints describe them. Each is its own proof: only the
 * right bytes have the hash that the chain gave it.
 */

const L1_BLOCK = '0x4200000000000000000000000000000000000015'
const L1_DEPOSITOR = '0xdeaddeaddeaddeaddeaddeaddeaddeaddead0001'
const ARBOS = '0x00000000000000000000000000000000000a4b05'
const UNSIGNED = { v: '0x0', r: '0x0', s: '0x0' }

/** Base, block 52158111: ethereum-optimism/optimism PR 20002 is the report. */
const BASE_DEPOSIT = {
  blockHash: '0x64d3010c7c0709e760500250dc4177f2479571a79fdcfc48eb73cda64c7332bd',
  blockNumber: '0x31bde9f',
  depositReceiptVersion: '0x1',
  from: L1_DEPOSITOR,
  gas: '0xf4240',
  gasPrice: '0x0',
  hash: '0x233ace96f255608781596edfe1520000bd25b69b122cc101be3abb6689a85322',
  input: `0x3db6be2b${[
    '000008dd00101c120000000000000005000000006ac2196700000000018e8792',
    '000000000000000000000000000000000000000000000000000000000be3256b',
    '00000000000000000000000000000000000000000000000000000000008b9262',
    'ae74035a834ae8863310574c2213838e9de36478c4f8c048cf3ea5d3ffcec401',
    '0000000000000000000000005050f69a9786f081509234f1a7f4684b5e5b76c9',
    '0000000000000000000000000094',
  ].join('')}`,
  mint: '0x0',
  nonce: '0x31bdea2',
  sourceHash: '0x391329aebfee79dbb200b510b04d8795c891055a887433c20a7392b77b0f2fec',
  to: L1_BLOCK,
  transactionIndex: '0x0',
  type: '0x7e',
  value: '0x0',
  yParity: '0x0',
  ...UNSIGNED,
}

/** Arbitrum One, block 408889830. */
const ARBITRUM_INTERNAL = {
  blockHash: '0xbb465c64e929a4700a6c5cfc3355e651e0f558134e09e06b4c65657f24499cec',
  blockNumber: '0x185f29e6',
  from: ARBOS,
  gas: '0x0',
  gasPrice: '0x0',
  hash: '0x61d48ab94f7fccf48f4baa3903781053f932feb466474c037736e910d7ca2afe',
  input: `0x6bf6a42d${[0, 0x16ddb27, 0x185f29e6, 0].map(wordOf).join('')}`,
  nonce: '0x0',
  to: ARBOS,
  transactionIndex: '0x0',
  value: '0x0',
  type: '0x6a',
  chainId: '0xa4b1',
  ...UNSIGNED,
}

/** Another chain of Arbitrum's kind (id 4663), block 79824059. */
const ORBIT_INTERNAL = {
  ...ARBITRUM_INTERNAL,
  blockNumber: '0x4c204bb',
  hash: '0xfc214c19fee15e5d244c4ecefc4f979974f4177bd85d311e2dceba121733d4f8',
  input: `0x6bf6a42d${[0, 0x18e87a1, 0x4c204bb, 0].map(wordOf).join('')}`,
  chainId: '0x1237',
}

const OF_CHAINS = [
  ['a deposit of Base', BASE_DEPOSIT],
  ['what begins a block of Arbitrum One', ARBITRUM_INTERNAL],
  ['what begins a block of a chain made with Arbitrum', ORBIT_INTERNAL],
] as const

it.each(OF_CHAINS)('the bytes of %s have the hash that the chain gave it', (_, json) => {
  expect(hashOf(json)).toBe(json.hash)
})

it.each(OF_CHAINS)('the bytes of %s come out however endpoints write them', (_, json) => {
  const { yParity: _yParity, ...older } = { yParity: null, ...json }
  expect(hashOf(older)).toBe(json.hash)
  expect(hashOf({ ...json, type: json.type.toUpperCase().replace('X', 'x') })).toBe(json.hash)
  expect(hashOf({ ...json, to: json.to.toUpperCase().replace('X', 'x') })).toBe(json.hash)
})

it('a transaction of a type that is not known, or with malformed members, gives no bytes', () => {
  for (const change of [
    { type: '0x7b' },
    { type: '0x80' },
    { type: '0x17e' },
    { type: 126 },
    { type: '126' },
    { type: ['0x7e'] },
    { sourceHash: 7 },
    { sourceHash: '0xabc' },
    { isSystemTx: '0x0' },
    { mint: '' },
    { mint: `0x1${'0'.repeat(64)}` },
    { value: -1 },
    { input: { length: 4 } },
  ])
    expect([change, encodeTransaction({ ...BASE_DEPOSIT, ...change })]).toEqual([change, null])
})

function hashOf(json: Readonly<Record<string, unknown>>): string {
  return keccak256(encodeTransaction(json) ?? new Uint8Array())
}

function wordOf(value: number): string {
  return value.toString(16).padStart(64, '0')
}
