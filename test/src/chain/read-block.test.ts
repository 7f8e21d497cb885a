import { keccak256, Transaction, Wallet } from 'ethers'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { decodeBlockHeader } from '#attestation/evidence/block.ts'
import { type Rpc, RpcError } from '#client/rpc.ts'
import { proveTransaction } from '#src/chain/block-proofs.ts'
import { BlockUnreadable, fetchBlock, type RawBlock } from '#src/chain/read-block.ts'
import { signAnchors, startTestChain, type TestChain } from '../../support/chain.ts'
import { changeReplies } from '../../support/change-replies.ts'

const OTHER = new Wallet(`0x${'6e'.repeat(32)}`)
const ANCHORS = 20
const FEES = {
  gasLimit: 200_000,
  maxFeePerGas: 500_000_000_000n,
  maxPriorityFeePerGas: 1_000_000_000n,
}

/** As JSON-RPC gives them. */
type Members = Readonly<Record<string, unknown>>
type Block = Members & { readonly transactions: readonly Members[] }
type Receipts = readonly Members[]

let chain: TestChain
let hash: string
let anchors: readonly { readonly raw: string; readonly txHash: string }[]
let others: readonly string[]

beforeAll(async () => {
  chain = await startTestChain()
  await chain.rpc.call('evm_setAutomine', [false])
  await chain.rpc.call('anvil_setBalance', [OTHER.address, '0x56bc75e2d63100000'])
  others = await signOthers(chain)
  anchors = await signAnchors(chain, { count: ANCHORS })
  for (const raw of [...others, ...anchors.map((anchor) => anchor.raw)])
    await chain.rpc.call('eth_sendRawTransaction', [raw])
  await chain.rpc.call('evm_mine', [])
  const block = (await chain.rpc.call('eth_getBlockByNumber', ['latest', false])) as {
    hash: string
  }
  hash = block.hash
}, 30_000)
afterAll(() => chain.dispose())

const read = async (rpc: Rpc = chain.rpc): Promise<RawBlock> => {
  const block = await fetchBlock(rpc, hash)
  if (block === null) throw new Error('expected the block')
  return block
}
const codeOf = (rpc: Rpc) =>
  read(rpc)
    .then((block) => block.transactionHashes.map((txHash) => proveTransaction(block, txHash)))
    .then(
      () => 'fine',
      (error) =>
        error instanceof BlockUnreadable || error instanceof RpcError ? error.code : error,
    )

it('a block is read as the bytes that were sent, and hash to what the chain names', async () => {
  const block = await read()
  expect(keccak256(block.header)).toBe(hash)
  expect(block.number).toBe(decodeBlockHeader(block.header).number)
  const sent = [...others, ...anchors.map(({ raw }) => raw)]
  const got = block.transactions.map((raw) => `0x${encodeHex(raw)}`)
  expect(got.toSorted()).toEqual(sent.toSorted())
  expect(new Set(got.map((raw) => Transaction.from(raw).type))).toEqual(new Set([0, 1, 2, 4]))
  expect(block.transactionHashes).toEqual(got.map((raw) => keccak256(raw)))
})

it('a block is null when the chain does not know it, or its receipts are of another block', async () => {
  expect(await fetchBlock(chain.rpc, `0x${'00'.repeat(32)}`)).toBeNull()
  const reorganised = changeReplies(chain.rpc, {
    eth_getBlockReceipts: (receipts: Receipts) =>
      receipts.map((receipt) => ({ ...receipt, blockHash: `0x${'11'.repeat(32)}` })),
  })
  expect(await fetchBlock(reorganised, hash)).toBeNull()
})

const withoutGasUsed = ({ gasUsed: _, ...block }: Members): Members => block
const ofBlock = (change: (block: Block) => Members) => ({ eth_getBlockByHash: change })
it.each([
  ['a header with a field that is not known', 'unknown_header', ofBlock(withoutGasUsed)],
  ['another number', 'unknown_header', ofBlock((block) => ({ ...block, number: '0x7' }))],
  ['a malformed header', 'bad_answer', ofBlock((block) => ({ ...block, stateRoot: '0xg' }))],
  [
    'too many transactions',
    'too_large',
    ofBlock((block) => ({ ...block, transactions: Array(10_001).fill(block.transactions[0]) })),
  ],
  [
    'a transaction left out',
    'none',
    ofBlock((block) => ({ ...block, transactions: block.transactions.slice(1) })),
  ],
  [
    'a receipt with a field that is not known',
    'unknown_receipts',
    {
      eth_getBlockReceipts: (receipts: Receipts) =>
        receipts.map((receipt) => ({ ...receipt, cumulativeGasUsed: '0x1' })),
    },
  ],
] as const)('a block is refused with %s: %s', async (_, code, change) => {
  const rpc = changeReplies(chain.rpc, change)
  if (code === 'none') expect(await fetchBlock(rpc, hash)).toBeNull()
  else expect(await codeOf(rpc)).toBe(code)
})

it('a block is refused with a transaction whose bytes no method gives', async () => {
  const hide = (block: Block) => ({ ...block, transactions: block.transactions.map(hideFields) })
  const rpc = changeReplies(chain.rpc, {
    eth_getBlockByHash: hide,
    eth_getRawTransactionByHash: () => '0x02c0',
    debug_getRawTransaction: () => '0x02c1',
  })
  expect(await codeOf(rpc)).toBe('unknown_transaction')
})

/**
 * Raw transactions of another account: all types that a mined block has without blobs, and one that
 * makes a contract.
 */
async function signOthers({ chainId, contract }: TestChain): Promise<readonly string[]> {
  const { address } = OTHER
  const { maxFeePerGas, ...rest } = FEES
  const legacy = { to: address, gasLimit: rest.gasLimit, gasPrice: maxFeePerGas, chainId }
  const accessList = [{ address: contract, storageKeys: [`0x${'01'.repeat(32)}`] }]
  const authorization = OTHER.authorizeSync({ address: contract, nonce: 6, chainId })
  return Promise.all(
    [
      { ...legacy, type: 0, nonce: 0, value: 256 },
      { ...legacy, type: 0, nonce: 1, to: null, data: '0x6000' },
      { ...legacy, type: 1, nonce: 2, accessList },
      { ...FEES, chainId, to: address, type: 2, nonce: 3, data: `0x${'00ff'.repeat(300)}` },
      { ...FEES, chainId, to: address, type: 2, nonce: 4, accessList, value: 1n },
      { ...FEES, chainId, to: address, type: 4, nonce: 5, authorizationList: [authorization] },
    ].map((transaction) => OTHER.signTransaction(transaction)),
  )
}

function hideFields({ hash, type }: Members): Members {
  return { hash, type: type === '0x2' ? '0x7e' : type, input: null }
}
