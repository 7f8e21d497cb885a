import { encodeRlp, keccak256, toBeArray } from 'ethers'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { decodeBlockHeader, decodeTransactionReceipt } from '#attestation/evidence/block.ts'
import { verifyTrieProof } from '#attestation/evidence/trie.ts'
import { type Rpc, RpcError } from '#client/rpc.ts'
import { proveTransaction } from '#src/chain/block-proofs.ts'
import { BlockUnreadable, fetchBlock, type RawBlock } from '#src/chain/read-block.ts'
import { proveByReference } from '../../attestation/evidence/reference-trie.ts'
import { signAnchors } from '../../support/chain.ts'
import { answerInstead, changeReplies } from '../../support/change-replies.ts'
import { type OptimismChain, startOptimismChain } from '../../support/optimism-chain.ts'

/** As JSON-RPC gives them. */
type Members = Readonly<Record<string, unknown>>
type Block = Members & { readonly transactions: readonly Members[] }
type Receipts = readonly Members[]

const WITHOUT_RAW = {
  eth_getRawTransactionByHash: 'refused',
  debug_getRawTransaction: 'refused',
} as const

// ethereum-optimism/optimism PR 20002
let chain: OptimismChain
let hash: string
let anchors: readonly string[]
let deposits: readonly string[]

beforeAll(async () => {
  chain = await startOptimismChain()
  await chain.rpc.call('evm_setAutomine', [false])
  const signed = await signAnchors(chain, { count: 3 })
  deposits = [await chain.sendDeposit(), await chain.sendDeposit({ mint: undefined, value: '0x0' })]
  for (const { raw } of signed) await chain.rpc.call('eth_sendRawTransaction', [raw])
  await chain.rpc.call('evm_mine', [])
  anchors = signed.map(({ txHash }) => txHash)
  hash = ((await chain.rpc.call('eth_getBlockByNumber', ['latest', false])) as { hash: string })
    .hash
}, 60_000)
afterAll(() => chain?.dispose())

const read = async (rpc: Rpc = chain.rpc): Promise<RawBlock> => {
  const block = await fetchBlock(rpc, hash)
  if (block === null) throw new Error('expected the block')
  return block
}
const faultOf = (rpc: Rpc) =>
  read(rpc).then(
    () => null,
    (error) => (error instanceof BlockUnreadable || error instanceof RpcError ? error : null),
  )
const changeTransactions = (change: (transaction: Members) => Members) =>
  changeReplies(answerInstead(chain.rpc, WITHOUT_RAW), {
    eth_getBlockByHash: (block: Block) => ({
      ...block,
      transactions: block.transactions.map(change),
    }),
  })
const changeReceipts = (change: (receipt: Members) => Members) =>
  changeReplies(chain.rpc, {
    eth_getBlockReceipts: (receipts: Receipts) => receipts.map(change),
  })
const isDeposit = (json: Members) => Number(json.type) === 0x7e

it('a block with deposits proves each anchor in it, and its receipt', async () => {
  const block = await read()
  expect(block.transactionHashes.toSorted()).toEqual([...anchors, ...deposits].toSorted())
  for (const txHash of anchors) {
    const proof = proveTransaction(block, txHash)
    const { transactionsRoot, receiptsRoot } = decodeBlockHeader(proof.header)
    const { transactionIndex: index } = proof
    const raw = verifyTrieProof({ root: transactionsRoot, index, nodes: proof.transactionProof })
    expect(keccak256(raw)).toBe(txHash)
    const receipt = verifyTrieProof({ root: receiptsRoot, index, nodes: proof.receiptProof })
    expect(decodeTransactionReceipt(receipt).hasSucceeded).toBe(true)
  }
})

it('a block with deposits is read from an endpoint that gives no raw transactions', async () => {
  expect(await read(answerInstead(chain.rpc, WITHOUT_RAW))).toEqual(await read())
})

it('a deposit whose JSON is altered or of an unknown type is named in the refusal', async () => {
  for (const change of [
    { mint: '0x7' },
    { isSystemTx: true },
    { sourceHash: `0x${'22'.repeat(32)}` },
    { type: '0x7d' },
    { type: { toString: 1 } },
    { input: null },
  ]) {
    const rpc = changeTransactions((json) =>
      json.hash === deposits[0] ? { ...json, ...change } : json,
    )
    expect([change, await faultOf(rpc)]).toEqual([
      change,
      expect.objectContaining({
        code: 'unknown_transaction',
        message: expect.stringContaining(deposits[0] ?? 'none'),
      }),
    ])
  }
})

it('a transaction of an unknown type is read by the bytes that the endpoint gives', async () => {
  const whole = await read()
  const bytesOf = ([txHash]: readonly unknown[]) => {
    const raw = whole.transactions[whole.transactionHashes.indexOf(String(txHash))]
    return raw === undefined ? null : `0x${encodeHex(raw)}`
  }
  const strange = changeTransactions(({ hash }) => ({ hash, type: '0x7d' }))
  expect(await faultOf(strange)).toMatchObject({ code: 'unknown_transaction' })
  for (const method of ['eth_getRawTransactionByHash', 'debug_getRawTransaction'])
    expect(await read(answerInstead(strange, { [method]: bytesOf }))).toEqual(whole)
  for (const wrong of [null, 7, '0x', '0x7e', '0xg', { length: 2 }])
    expect(
      await faultOf(answerInstead(strange, { debug_getRawTransaction: () => wrong })),
    ).toMatchObject({ code: 'unknown_transaction' })
})

it('receipts of deposits that are altered, or miss what is hashed, are refused', async () => {
  for (const change of [
    { depositNonce: '0x63' },
    { depositReceiptVersion: '0x2' },
    { depositReceiptVersion: null },
    { depositNonce: null },
    { type: '0x7d' },
    { type: '0x17e' },
    { status: '0x0' },
    { logsBloom: null },
    { logs: 'none' },
  ]) {
    const rpc = changeReceipts((json) => (isDeposit(json) ? { ...json, ...change } : json))
    expect([change, await faultOf(rpc)]).toEqual([
      change,
      expect.objectContaining({
        code: 'unknown_receipts',
        message: expect.stringMatching(/types are .*0x7e/),
      }),
    ])
  }
})

it('receipts with fields that are not known are read by their bytes, when those add up', async () => {
  const whole = await read()
  const raw = whole.receipts.map((receipt) => `0x${encodeHex(receipt)}`)
  const strange = changeReceipts((json) => ({ ...json, cumulativeGasUsed: '0x1' }))
  expect(await read(answerInstead(strange, { debug_getRawReceipts: () => raw }))).toEqual(whole)
  for (const wrong of [
    raw.slice(1),
    raw.toReversed(),
    raw.with(0, '0x'),
    [...raw, '0x00'],
    'x',
    null,
  ])
    expect(
      await faultOf(answerInstead(strange, { debug_getRawReceipts: () => wrong })),
    ).toMatchObject({
      code: 'unknown_receipts',
    })
})

it('a header with fields that are not known is read by its bytes, when those have the hash', async () => {
  const whole = await read()
  const strange = changeReplies(chain.rpc, {
    eth_getBlockByHash: ({ requestsHash: _, ...block }: Block & Members) => block,
  })
  expect(await faultOf(strange)).toMatchObject({ code: 'unknown_header' })
  const header = `0x${encodeHex(whole.header)}`
  expect(await read(answerInstead(strange, { debug_getRawHeader: () => header }))).toEqual(whole)
  for (const wrong of [`${header}00`, '0x', 7, null])
    expect(
      await faultOf(answerInstead(strange, { debug_getRawHeader: () => wrong })),
    ).toMatchObject({
      code: 'unknown_header',
    })
})

it('receipts before Canyon are hashed without the nonce that endpoints report', async () => {
  const fields = (json: Members) => [
    toBeArray(String(json.status)),
    toBeArray(String(json.cumulativeGasUsed)),
    String(json.logsBloom),
    [],
  ]
  const deposit = ((await chain.rpc.call('eth_getBlockReceipts', ['latest'])) as Receipts).find(
    isDeposit,
  )
  if (deposit === undefined) throw new Error('expected a deposit')
  const entry = `0x7e${encodeRlp(fields(deposit)).slice(2)}`
  const transaction = (
    (await chain.rpc.call('eth_getBlockByHash', [hash, true])) as Block
  ).transactions.find(isDeposit)
  const old = await makeBlock({
    receiptsRoot: proveByReference([entry], 0).root,
    transactions: [transaction],
  })
  const { depositReceiptVersion: _, ...before } = deposit
  const receipts = [{ ...before, blockHash: old.hash }]
  const rpc = answerInstead(chain.rpc, {
    eth_getBlockByHash: () => old,
    eth_getBlockReceipts: () => receipts,
  })
  const block = await fetchBlock(rpc, old.hash)
  expect(block?.receipts).toEqual([decodeHex(entry)])
})

// eth-clients/sepolia PR 126
it('a header after Amsterdam, of 23 fields, has the hash of its fields in their order', async () => {
  const amsterdam = await makeBlock({
    blockAccessListHash: `0x${'ba'.repeat(32)}`,
    slotNumber: '0x00abcdef',
    transactions: [],
  })
  const block = await fetchBlock(
    answerInstead(chain.rpc, { eth_getBlockByHash: () => amsterdam }),
    amsterdam.hash,
  )
  expect(block).toMatchObject({ hash: amsterdam.hash, transactions: [], receipts: [] })
  const later = { ...amsterdam, slotNumber: '0xabcdee' }
  await expect(
    fetchBlock(answerInstead(chain.rpc, { eth_getBlockByHash: () => later }), amsterdam.hash),
  ).rejects.toMatchObject({ code: 'unknown_header' })
})

/** The chain's block with other members, and the hash that those come to by ethers' RLP. */
async function makeBlock(members: Members): Promise<Block & { readonly hash: string }> {
  const block = {
    ...((await chain.rpc.call('eth_getBlockByHash', [hash, true])) as Block),
    ...members,
  }
  const numbers =
    /^(difficulty|number|gasLimit|gasUsed|timestamp|baseFeePerGas|blobGasUsed|excessBlobGas|slotNumber)$/
  const names = [
    'parentHash',
    'sha3Uncles',
    'miner',
    'stateRoot',
    'transactionsRoot',
    'receiptsRoot',
    'logsBloom',
    'difficulty',
    'number',
    'gasLimit',
    'gasUsed',
    'timestamp',
    'extraData',
    'mixHash',
    'nonce',
    'baseFeePerGas',
    'withdrawalsRoot',
    'blobGasUsed',
    'excessBlobGas',
    'parentBeaconBlockRoot',
    'requestsHash',
    'blockAccessListHash',
    'slotNumber',
  ].filter((name) => (block as Members)[name] !== undefined)
  const values = names.map((name) => String((block as Members)[name]))
  const fields = values.map((value, at) =>
    numbers.test(names[at] ?? '') ? toBeArray(value) : value,
  )
  return { ...block, hash: keccak256(encodeRlp(fields)) }
}
