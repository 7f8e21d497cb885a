import { Wallet } from 'ethers'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
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

  it('contract deploy takes a key without 0x', async () => {
    expect((await deploy([], { DEPLOYER_PRIVATE_KEY: KEY.slice(2) })).code).toBe(0)
  })

  it('contract deploy does without a tip when the endpoint suggests no tip', async () => {
    behaveOn('eth_maxPriorityFeePerGas', { kind: 'alter', alter: refuseSecond })
    expect((await deploy()).code).toBe(0)
  })
})

/** The second reply of a batch becomes a refusal. */
function refuseSecond(answer: string): string {
  const [first] = JSON.parse(answer) as readonly unknown[]
  return JSON.stringify([
    first,
    { jsonrpc: '2.0', id: 1, error: { code: -32601, message: 'no such method' } },
  ])
}

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

  it('contract deploy refuses a chain without a base fee, and sends nothing', async () => {
    const rename = (answer: string) => answer.replace('baseFeePerGas', 'otherFeePerGas')
    behaveOn('eth_getBlockByNumber', { kind: 'alter', alter: rename })
    expect(await deploy()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no base fee'),
    })
  })

  it('contract deploy refuses a chain that does not answer, and sends nothing', async () => {
    const run = await deploy(['--rpc', 'http://127.0.0.1:9'])
    expect([run.code, run.stderr]).toEqual([
      1,
      expect.stringContaining('no connection to the chain'),
    ])
  }, 60_000)

  it('contract deploy fails with what the endpoint refuses, and sends nothing', async () => {
    const refusal = '{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"not today"}}'
    behaveOn('eth_sendRawTransaction', { kind: 'answer', body: refusal })
    const run = await deploy()
    expect([run.code, run.stderr]).toEqual([
      1,
      expect.stringContaining('not today; the transaction of an'),
    ])
    expect(run.stderr).toContain('may still be waiting for its block: run the command again later')
  })

  it.each([
    [['--timeout', '0'], 'expected a whole number of seconds'],
    [['--rpc', 'ftp://x'], 'expected an http(s) URL'],
  ])('contract deploy refuses the words %j, and sends nothing', async (words, message) => {
    expect(await deploy(words)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
  })
})

describe('a deployment whose end is not seen', () => {
  it('a deployment that was not sent is sent when it is repeated', async () => {
    behaveOn('eth_sendRawTransaction', { kind: 'answer', status: 502, body: '' })
    expect(await deploy()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('may have been sent'),
    })
    expect(await nonce()).toBe(0)
    proxy.behave(() => ({ kind: 'pass' }))
    expect(await deploy()).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('is deployed'),
    })
  })

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

  it('a deployment is not waited for when the first, with other fees, stands in its way', async () => {
    await whileNothingIsMined(async () => {
      expect((await deploy(['--timeout', '1'])).code).toBe(1)
      behaveOn('eth_maxPriorityFeePerGas', { kind: 'alter', alter: lowerTipByOne })
      const run = await deploy(['--timeout', '5'])
      expect([run.code, run.stderr]).toEqual([
        1,
        expect.stringContaining('underpriced; the transaction of an'),
      ])
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

  it('a deployment is somebody else’s when ours was dropped and the contract is there', async () => {
    await whileNothingIsMined(async () => {
      const ours = deploy(['--json', '--timeout', '10'])
      await vi.waitFor(async () => expect(await nonce('pending')).toBe(1), { timeout: 30_000 })
      await rpc.call('anvil_dropAllTransactions', [])
      const [from] = (await rpc.call('eth_accounts', [])) as readonly string[]
      await rpc.call('eth_sendTransaction', [{ from, to: DEPLOYMENT.proxy, data: DEPLOYMENT.data }])
      await rpc.call('evm_mine', [])
      const run = await ours
      expect(run.code, run.stderr).toBe(0)
      expect(JSON.parse(run.stdout)).toMatchObject({ deployed: false, transaction: null })
      expect(await nonce()).toBe(0)
    })
  })

  it('a deployment is ours when its block comes between the questions for the receipt and for the code', async () => {
    let asked = 0
    proxy.behave((methods) =>
      methods.includes('eth_getTransactionReceipt') && ++asked === 1
        ? { kind: 'answer', body: '[{"jsonrpc":"2.0","id":0,"result":null}]' }
        : { kind: 'pass' },
    )
    const run = await deploy(['--json'])
    expect(run.code, run.stderr).toBe(0)
    expect(JSON.parse(run.stdout)).toMatchObject({ deployed: true, block: expect.any(Number) })
    expect(asked).toBe(2)
  })
})

/** A transaction that takes another's place must pay more; by how much, nodes differ. */
function lowerTipByOne(answer: string): string {
  const [block, tip] = JSON.parse(answer) as readonly [unknown, { readonly result: string }]
  return JSON.stringify([block, { ...tip, result: `0x${(BigInt(tip.result) - 1n).toString(16)}` }])
}

function reverted(answer: string): string {
  return answer.replace('"status":"0x1"', '"status":"0x0"')
}
