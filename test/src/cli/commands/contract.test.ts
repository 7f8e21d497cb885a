import { Wallet } from 'ethers'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { AFFIDAVIT, DEPLOYMENT } from '#attestation/contract/artifact.ts'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { DEVELOPMENT_CHAIN_ID } from '#src/chain/open-chain.ts'
import { startAnvilProcess } from '#src/local/anvil-process.ts'
import { awaitFreePort } from '#src/local/free-port.ts'
import type { GuardedProcess } from '#src/local/guarded-process.ts'
import { recordLog } from '../../../support/chain.ts'
import { type ChainProxy, type ProxyAction, startChainProxy } from '../../../support/chain-proxy.ts'
import { runCommandWith } from '../../../support/run-command.ts'

const deployer = new Wallet(`0x${'d1'.repeat(32)}`)
const KEY = deployer.privateKey

let anvil: GuardedProcess
let rpc: Rpc
let url: string
let proxy: ChainProxy
let before: unknown

/** A chain without the contract: startTestChain's has it. */
beforeAll(async () => {
  const port = await awaitFreePort(0)
  url = `http://127.0.0.1:${port}`
  rpc = createRpc({ url })
  anvil = await startAnvilProcess({ port, rpc, stateFile: null, log: recordLog().log })
  await rpc.call('anvil_setBalance', [deployer.address, `0x${(10n ** 18n).toString(16)}`])
  proxy = await startChainProxy(url)
}, 60_000)
afterAll(async () => {
  await proxy.stop()
  await rpc.close()
  await anvil.stop()
}, 60_000)
beforeEach(async () => {
  before = await rpc.call('evm_snapshot', [])
  proxy.behave(() => ({ kind: 'pass' }))
})
afterEach(async () => {
  await rpc.call('evm_revert', [before])
})

const deploy = (
  words: readonly string[] = [],
  variables: Readonly<Record<string, string>> = { DEPLOYER_PRIVATE_KEY: KEY },
) => runCommandWith(variables, 'contract', 'deploy', '--rpc', proxy.url, ...words)

const code = () => rpc.call('eth_getCode', [DEPLOYMENT.address, 'latest'])
const nonce = async (block = 'latest') =>
  Number(await rpc.call('eth_getTransactionCount', [deployer.address, block]))

/** What becomes of each exchange in which this method is called; others pass. */
const behaveOn = (method: string, action: ProxyAction) =>
  proxy.behave((methods) => (methods.includes(method) ? action : { kind: 'pass' }))

/** Runs `during` while a transaction waits until it is dropped, or a block is asked for. */
async function whileNothingIsMined(during: () => Promise<void>): Promise<void> {
  await rpc.call('evm_setAutomine', [false])
  try {
    await during()
  } finally {
    await rpc.call('anvil_dropAllTransactions', [])
    await rpc.call('evm_setAutomine', [true])
  }
}

describe('contract deploy', () => {
  it('contract deploy puts the contract of this release where it is on every chain, and tells where', async () => {
    const { code: exit, stdout, stderr } = await deploy(['--json'])
    expect(exit, stderr).toBe(0)
    expect(await code()).toBe(AFFIDAVIT.deployedBytecode)
    const reported = JSON.parse(stdout)
    expect(reported).toMatchObject({
      address: DEPLOYMENT.address,
      chain_id: DEVELOPMENT_CHAIN_ID,
      deployed: true,
    })
    // contracts/README.md says so.
    expect(reported.gas_used).toBeLessThan(750_000)
    const receipt = await rpc.call('eth_getTransactionReceipt', [reported.transaction])
    expect(receipt).toMatchObject({
      from: deployer.address.toLowerCase(),
      blockNumber: `0x${reported.block.toString(16)}`,
      gasUsed: `0x${reported.gas_used.toString(16)}`,
      status: '0x1',
    })
    expect(stdout + stderr).not.toContain(KEY.slice(2))
  })

  it('contract deploy says when the contract is there already, without a key, and sends nothing', async () => {
    expect((await deploy()).stdout).toMatch(
      /^address {6}0x[0-9a-f]{40}\nchain id {5}31337\ntransaction {2}0x[0-9a-f]{64}\nblock {8}\d+\ngas used {5}\d+\n$/,
    )
    const again = await deploy([], {})
    expect(again).toMatchObject({
      code: 0,
      stdout: `address      ${DEPLOYMENT.address}\nchain id     ${DEVELOPMENT_CHAIN_ID}\n`,
      stderr: 'The contract is already there.\n',
    })
    expect(JSON.parse((await deploy(['--json'])).stdout)).toMatchObject({
      deployed: false,
      transaction: null,
    })
    expect(await nonce()).toBe(1)
  })
})

describe('contract deploy refuses, and sends nothing,', () => {
  afterEach(async () => {
    expect(await nonce()).toBe(0)
  })

  it('contract deploy refuses a malformed key, without repeating it, and sends nothing', async () => {
    const run = await deploy([], { DEPLOYER_PRIVATE_KEY: '0xhush' })
    expect([run.code, run.stdout]).toEqual([2, ''])
    expect(run.stderr).toContain('DEPLOYER_PRIVATE_KEY: expected 32 bytes in hex')
    expect(run.stderr).not.toContain('hush')
  })

  it('contract deploy refuses to go on without a key, and sends nothing', async () => {
    const run = await deploy([], {})
    expect([run.code, run.stderr]).toEqual([
      2,
      expect.stringContaining('DEPLOYER_PRIVATE_KEY: expected'),
    ])
  })

  it.each([0n, 1n])(
    'contract deploy refuses an account with %s wei, names it, and sends nothing',
    async (wei) => {
      await rpc.call('anvil_setBalance', [deployer.address, `0x${wei.toString(16)}`])
      const run = await deploy()
      expect(run.code).toBe(1)
      expect(run.stderr).toContain(`${deployer.address.toLowerCase()}, has 0.0`)
      expect(run.stderr).toContain('are needed')
    },
  )

  it('contract deploy refuses a chain without the proxy, says what helps, and sends nothing', async () => {
    await rpc.call('anvil_setCode', [DEPLOYMENT.proxy, '0x'])
    const run = await deploy()
    expect(run.code).toBe(1)
    expect(run.stderr).toContain(`no deterministic deployment proxy at ${DEPLOYMENT.proxy}`)
    expect(run.stderr).toContain('contracts/README.md')
  })
})

describe('a deployment whose end is not seen', () => {
  it('a deployment is found when it is repeated after an answer that was lost', async () => {
    behaveOn('eth_sendRawTransaction', { kind: 'drop_answer' })
    const lost = await deploy()
    expect([lost.code, lost.stderr]).toEqual([1, expect.stringContaining('may have been sent')])
    expect(await deploy()).toMatchObject({ code: 0, stderr: 'The contract is already there.\n' })
    expect(await nonce()).toBe(1)
  })

  it('a deployment is given up after --timeout while no block has it, and its transaction is named', async () => {
    await whileNothingIsMined(async () => {
      const run = await deploy(['--timeout', '1'])
      expect(run.code).toBe(1)
      expect(run.stderr).toMatch(
        /transaction 0x[0-9a-f]{64} was sent, but after 1 s it is in no block: run/,
      )
    })
  })

  it('a deployment that is repeated while the first still waits waits for the same transaction', async () => {
    await whileNothingIsMined(async () => {
      const first = await deploy(['--timeout', '1'])
      expect([first.code, first.stderr]).toEqual([1, expect.stringContaining('it is in no block')])
      const mined: Promise<unknown>[] = []
      proxy.behave((methods) => {
        if (methods.includes('eth_getTransactionReceipt')) mined.push(rpc.call('evm_mine', []))
        return { kind: 'pass' }
      })
      const second = await deploy(['--json', '--timeout', '10'])
      await Promise.all(mined)
      expect(second.code, second.stderr).toBe(0)
      const { deployed, transaction } = JSON.parse(second.stdout)
      expect([deployed, first.stderr]).toEqual([true, expect.stringContaining(transaction)])
      expect(await nonce()).toBe(1)
    })
  })

  it('a deployment is not taken for done while other code is at the address', async () => {
    const other = (answer: string) => answer.replace(AFFIDAVIT.deployedBytecode, '0x6001')
    behaveOn('eth_getCode', { kind: 'alter', alter: other })
    const run = await deploy(['--timeout', '1'])
    expect([run.code, run.stderr]).toEqual([
      1,
      expect.stringContaining('is not the contract of this release'),
    ])
  })

  it('a deployment is somebody else’s when theirs came first: ours reverted, and the contract is there', async () => {
    behaveOn('eth_getTransactionReceipt', { kind: 'alter', alter: reverted })
    expect(await deploy()).toMatchObject({
      code: 0,
      stdout: expect.not.stringContaining('transaction'),
    })
  })
})

function reverted(answer: string): string {
  return answer.replace('"status":"0x1"', '"status":"0x0"')
}
