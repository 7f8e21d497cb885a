import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Wallet } from 'ethers'
import { AFFIDAVIT } from '#attestation/contract/artifact.ts'
import { type BundleBlock, createBundle } from '#attestation/evidence/bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import type { Rpc } from '#client/rpc.ts'
import { startTestChain } from '../../support/chain.ts'
import { standardChain } from '../../support/nitro-builder/document-builder.ts'
import { CONTRACT } from '../build-record.ts'
import { BOOT_CONFIGURATION, buildEvidence, policyFor, RELAYER_KEY } from './build-evidence.ts'
import { type RawBlock, readBlock } from './read-block.ts'
import { proveByReference } from './reference-trie.ts'

/*
 * Makes test/vectors/evidence/second from one run of anvil: a bundle of version 2 whose anchor is
 * in a mined block, and the same as it is when its head was anchored again. Run with node; the
 * documents' keys are new each time, so every file changes. blocks.json, first/ and old-anchor/
 * (version 1) were made so before there was a version 2.
 */

const FOLDER = join(import.meta.dirname, '../../vectors/evidence/second')
const OTHER = new Wallet(`0x${'6e'.repeat(32)}`)

let nonce = 0
const chain = await startTestChain()
try {
  const { rpc } = chain
  await rpc.call('anvil_setCode', [CONTRACT, AFFIDAVIT.deployedBytecode])
  for (const { address } of [OTHER, new Wallet(RELAYER_KEY)])
    await rpc.call('anvil_setBalance', [address, '0x56bc75e2d63100000'])
  await rpc.call('anvil_setNonce', [new Wallet(RELAYER_KEY).address, '0x7'])
  await rpc.call('evm_setAutomine', [false])
  const { bundle: pending } = buildEvidence({ isMined: false })
  const mined = await mine(rpc, { count: 40, transaction: pending.transaction })
  const bundle = createBundle({
    record: pending.record,
    bootConfiguration: BOOT_CONFIGURATION,
    transaction: pending.transaction,
    block: proveInBlock(mined, pending.transaction),
  })
  mkdirSync(FOLDER, { recursive: true })
  write('bundle.json', bundle)
  write('expected.json', describeExpectation(mined))
  const { tx_hash: mined_hash, ...record } = bundle.record
  const again = {
    ...record,
    tx_hash: `0x${'11'.repeat(32)}`,
    reanchored: [`0x${'22'.repeat(32)}`, mined_hash],
  }
  write('reanchored.json', { ...bundle, record: again })
} finally {
  await chain.dispose()
}

/** A block with `count` transfers of another account, and `transaction` somewhere among them. */
async function mine(
  rpc: Rpc,
  { count, transaction }: { readonly count: number; readonly transaction?: string },
): Promise<RawBlock> {
  for (let at = 0; at < count; at++) {
    if (at === Math.floor(count / 2) && transaction)
      await rpc.call('eth_sendRawTransaction', [transaction])
    await rpc.call('eth_sendRawTransaction', [await signTransfer(nonce++, at)])
  }
  await rpc.call('evm_mine', [])
  const block = await readBlock(rpc, 'latest')
  if (block.transactions.length !== count + (transaction ? 1 : 0))
    throw new Error('not all were mined')
  return block
}

/** Transactions of every type that anvil takes, in turn: the tries hold them all alike. */
async function signTransfer(nonce: number, at: number): Promise<string> {
  const fields = { to: OTHER.address, value: 1n, nonce, gasLimit: 30_000n, chainId: chain.chainId }
  const price = 3_000_000_000n
  if (at % 3 === 0) return OTHER.signTransaction({ ...fields, type: 0, gasPrice: price })
  if (at % 3 === 1)
    return OTHER.signTransaction({ ...fields, type: 1, gasPrice: price, accessList: [] })
  return OTHER.signTransaction({
    ...fields,
    type: 2,
    maxFeePerGas: price,
    maxPriorityFeePerGas: 1_000_000_000n,
  })
}

function proveInBlock(block: RawBlock, transaction: string): BundleBlock {
  const index = block.transactions.indexOf(transaction)
  return {
    number: block.number,
    hash: block.hash,
    header: block.header,
    transaction_index: index,
    transaction_proof: proveByReference(block.transactions, index).nodes,
    receipt_proof: proveByReference(block.receipts, index).nodes,
  }
}

function describeExpectation(mined: RawBlock): Json {
  const policy = policyFor(BOOT_CONFIGURATION)
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
  return {
    source:
      'What bundle.json verifies under: the development root, the measurements and the configuration of its enclave',
    roots: [hex(standardChain.rootSha256)],
    measurements: Object.fromEntries(
      [...(policy.measurements?.[0] ?? [])].map(([at, pcr]) => [at, hex(pcr)]),
    ),
    configurations: (policy.configurations ?? []).map(hex),
    chain: { chainId: chain.chainId, blockHash: mined.hash, newestBlock: mined.number },
  }
}

function write(name: string, value: Json): void {
  writeFileSync(join(FOLDER, name), `${JSON.stringify(value, null, 2)}\n`)
}
