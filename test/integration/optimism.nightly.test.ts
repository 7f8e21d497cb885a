import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { type Machine, startMachine } from '../runbooks/machine.ts'
import { type OptimismChain, startOptimismChain } from '../support/optimism-chain.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'

/** Measurements of the enclave: these two hex digits, repeated. */
const DIGITS = 'a1'
/** Time between two blocks. Each block begins with a deposit, as on an OP-stack chain. */
const BLOCK_MS = 200

let folder: string
let chain: OptimismChain
let machine: Machine
let isOver = false
let mining: Promise<void>

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-optimism-'))
  chain = await startOptimismChain()
  await chain.rpc.call('evm_setAutomine', [false])
  mining = mineBlocks()
  machine = await startMachine({ chain, enclaves: { 16: DIGITS } })
})
afterAll(async () => {
  await machine?.stop()
  isOver = true
  await mining
  await chain?.dispose()
  await rm(folder, { recursive: true, force: true })
})

async function mineBlocks(): Promise<void> {
  while (!isOver) {
    await chain.sendDeposit()
    await new Promise((resolve) => setTimeout(resolve, BLOCK_MS))
    await chain.rpc.call('evm_mine', [])
  }
}

const get = async (path: string): Promise<Response> =>
  fetch(machine.walking.variables.GATEWAY + path, {
    headers: { authorization: `Bearer ${machine.key}` },
  })

it('a bundle of a gateway on an OP-stack chain is verified with its block, offline', async () => {
  const { hash } = await machine.complete()
  const read = async () =>
    (await (await get(`/v1/verified/chat/completions/${hash}/evidence`)).json()) as EvidenceBundle
  await until('the bundle has its block', async () => (await read()).block !== null, 60_000)
  const bundle = await read()
  const number = await chain.rpc.call('eth_getTransactionReceipt', [bundle.record.tx_hash])
  const { blockNumber } = number as { readonly blockNumber: string }
  const block = await chain.rpc.call('eth_getBlockByNumber', [blockNumber, true])
  const { transactions } = block as { readonly transactions: readonly { readonly type: string }[] }
  // Without it, this would show no more than other chains do.
  expect(transactions.map(({ type }) => Number(type))).toContain(0x7e)

  const file = join(folder, 'bundle.json')
  await writeFile(file, JSON.stringify(bundle))
  const pcrs = [0, 1, 2].flatMap((index) => ['--pcr', `${index}=${DIGITS.repeat(48)}`])
  const digest = encodeHex(new Uint8Array(digestBootConfiguration(bundle.boot_configuration)))
  const words = ['--root', machine.rootFile, ...pcrs, '--configuration', digest]
  const { code, stdout } = await runCli(['verify', file, ...words])
  expect([code, stdout]).toEqual([0, expect.stringContaining('VERIFIED')])
  expect(stdout).toContain(String(chain.chainId))
  expect(await readFile(file, 'utf8')).toContain(bundle.record.tx_hash)
})
