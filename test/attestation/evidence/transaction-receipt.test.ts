import { encodeRlp, type RlpStructuredData } from 'ethers'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import {
  decodeTransactionReceipt,
  hasAnchoredEvent,
  TRANSACTION_RECEIPT_BYTES_MAX,
} from '#attestation/evidence/block.ts'
import { CONTRACT as AFFIDAVIT } from '../../support/affidavit-contract.ts'
import { BLOCKS } from './vectors.ts'

const CONTRACT = `0x${'c0'.repeat(20)}`
const NOTARY = `0x${'ab'.repeat(20)}`
const HEAD = { size: 9, root: new Uint8Array(32).fill(0xaa) }
const BLOOM = `0x${'00'.repeat(256)}`
const EVENT = AFFIDAVIT.encodeEventLog('Anchored', [NOTARY, HEAD.size, HEAD.root])
const ENTRY = [CONTRACT, EVENT.topics, EVENT.data] as const

it('decodeTransactionReceipt reads the receipt of an anchor that a chain gave', () => {
  const block = BLOCKS.at(-1)
  const at = block?.transactions.findIndex((raw) => raw.length > 600) ?? -1
  const receipt = decodeTransactionReceipt(decodeHex(block?.receipts[at] ?? ''))
  expect(receipt.hasSucceeded).toBe(true)
  const [event] = receipt.events.map(({ topics, data }) => ({
    topics: topics.map((topic) => `0x${encodeHex(topic)}`),
    data: `0x${encodeHex(data)}`,
  }))
  expect(AFFIDAVIT.parseLog(event ?? { topics: [], data: '' })?.name).toBe('Anchored')
})

it('decodeTransactionReceipt tells success from failure', () => {
  expect(decodeTransactionReceipt(encoded(['0x01', '0x01', BLOOM, []])).hasSucceeded).toBe(true)
  expect(decodeTransactionReceipt(encoded(['0x', '0x01', BLOOM, []])).hasSucceeded).toBe(false)
})

it.each<[string, RlpStructuredData, RegExp]>([
  ['a status of 2', ['0x02', '0x01', BLOOM, []], /status of 0 or 1/],
  ['a status written as a zero byte', ['0x00', '0x01', BLOOM, []], /leading zeros/],
  ['a state root for a status', [`0x${'11'.repeat(32)}`, '0x01', BLOOM, []], /at most 2\^53-1/],
  ['gas with a leading zero', ['0x01', '0x0001', BLOOM, []], /leading zeros/],
  ['a bloom of 255 bytes', ['0x01', '0x01', BLOOM.slice(0, -2), []], /256 bytes/],
  ['events that are no list', ['0x01', '0x01', BLOOM, '0x'], /events to be a list/],
  ['3 fields', ['0x01', '0x01', BLOOM], /4 fields, got 3/],
  ['5 fields', ['0x01', '0x01', BLOOM, [], '0x'], /4 fields, got 5/],
  ['an event of 2 fields', ['0x01', '0x01', BLOOM, [[CONTRACT, []]]], /3 fields of an event/],
  [
    'an address of 19 bytes',
    ['0x01', '0x01', BLOOM, [[`0x${'11'.repeat(19)}`, [], '0x']]],
    /20 bytes/,
  ],
  [
    'a topic of 31 bytes',
    ['0x01', '0x01', BLOOM, [[CONTRACT, [`0x${'11'.repeat(31)}`], '0x']]],
    /32 bytes/,
  ],
  [
    'topics that are no list',
    ['0x01', '0x01', BLOOM, [[CONTRACT, '0x', '0x']]],
    /topics to be a list/,
  ],
  [
    'data that is a list',
    ['0x01', '0x01', BLOOM, [[CONTRACT, [], []]]],
    /data to be a byte string/,
  ],
])('decodeTransactionReceipt refuses a malformed receipt: %s', (_, fields, message) => {
  expect(() => decodeTransactionReceipt(encoded(fields))).toThrow(message)
})

it('receipts of other types, with bytes after them or too long are refused', () => {
  const receipt = encoded(['0x01', '0x01', BLOOM, []])
  for (const type of [0, 1, 3, 0x7e, 0xf9])
    expect(() => decodeTransactionReceipt(receipt.with(0, type))).toThrow(/type 2/)
  expect(() => decodeTransactionReceipt(receipt.subarray(1))).toThrow(/type 2/)
  expect(() => decodeTransactionReceipt(Uint8Array.from([...receipt, 0]))).toThrow(
    /after the value/,
  )
  const long = new Uint8Array(TRANSACTION_RECEIPT_BYTES_MAX + 1).fill(2)
  expect(() => decodeTransactionReceipt(long)).toThrow(/at most 16384/)
})

const anchored = { contract: CONTRACT, notary: NOTARY, head: HEAD }

it('hasAnchoredEvent finds the event wherever it stands', () => {
  const other = [NOTARY, [], '0x'] as const
  for (const events of [[ENTRY], [other, ENTRY], [ENTRY, other]])
    expect(hasAnchoredEvent(receiptWith(events), anchored)).toBe(true)
})

it.each<[string, readonly unknown[]]>([
  ['no event', []],
  ['the event of another contract', [[NOTARY, EVENT.topics, EVENT.data]]],
  ['another event', [[CONTRACT, [`0x${'11'.repeat(32)}`, ...EVENT.topics.slice(1)], EVENT.data]]],
  ['the event without its notary', [[CONTRACT, EVENT.topics.toSpliced(1, 1), EVENT.data]]],
  ['a topic more', [[CONTRACT, [...EVENT.topics, EVENT.data], '0x']]],
  ['data more', [[CONTRACT, EVENT.topics, `${EVENT.data}00`]]],
])('hasAnchoredEvent takes nothing else for the event: %s', (_, events) => {
  expect(hasAnchoredEvent(receiptWith(events), anchored)).toBe(false)
})

it('hasAnchoredEvent does not take the event of another notary or head', () => {
  const receipt = receiptWith([ENTRY])
  for (const other of [
    { ...anchored, notary: CONTRACT },
    { ...anchored, head: { ...HEAD, size: 10 } },
    { ...anchored, head: { ...HEAD, root: new Uint8Array(32) } },
  ])
    expect(hasAnchoredEvent(receipt, other)).toBe(false)
})

function receiptWith(events: readonly unknown[]) {
  return decodeTransactionReceipt(encoded(['0x01', '0x01', BLOOM, events as RlpStructuredData]))
}

function encoded(fields: RlpStructuredData): Uint8Array {
  return decodeHex(`0x02${encodeRlp(fields).slice(2)}`)
}
