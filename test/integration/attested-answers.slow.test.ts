import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Interface, Wallet } from 'ethers'
import solc from 'solc'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { addressOf } from '#attestation/account.ts'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashReceipt } from '#attestation/log-proof.ts'
import { parseReceipt, type Receipt } from '#attestation/receipt.ts'
import {
  type AnswerCall,
  encodeAnswer,
  hashQuestion,
} from '#client/examples/contract/answer-call.ts'
import { type Affidavit, connect } from '#client/index.ts'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { readContract, sendAnchor } from '../support/affidavit-contract.ts'
import { signHead } from '../support/chain.ts'
import { until } from '../support/until.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const FILE = join(import.meta.dirname, '../../client/examples/contract/AttestedAnswers.sol')

/** Funded accounts of the local chain: the contract's owner, and a stranger. */
const OWNER = '0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266'
const STRANGER = '0x70997970c51812dc3a010c7d01b50e0d17dc79c8'

let service: SharedAffidavit
let affidavit: Affidavit
let rpc: Rpc
let abi: Interface
/** The address of the deployed example. */
let address = ''
/** A completion that an enclave signed, with its path to the newest anchored head. */
let real: { readonly notary: string; readonly receipt: Receipt; readonly path: readonly string[] }

beforeAll(async () => {
  service = await useAffidavit()
  const policy = JSON.parse(await readFile(service.policyFile, 'utf8'))
  affidavit = await connect({ url: service.url, apiKey: service.apiKey, policy })
  rpc = createRpc({ url: service.rpcUrl })
  const compiled = await compile()
  abi = new Interface(compiled.abi as never)
  const data = compiled.bytecode + abi.encodeDeploy([service.contract]).slice(2)
  address = String((await send(OWNER, { data })).contractAddress)
  real = await complete()
  await call(OWNER, 'trust', [real.notary, true])
})
afterAll(() => rpc.close())

async function compile(): Promise<{ readonly abi: unknown; readonly bytecode: string }> {
  const output = JSON.parse(
    solc.compile(
      JSON.stringify({
        language: 'Solidity',
        sources: { 'AttestedAnswers.sol': { content: await readFile(FILE, 'utf8') } },
        settings: {
          evmVersion: 'paris',
          optimizer: { enabled: true, runs: 200 },
          outputSelection: { '*': { '*': ['abi', 'evm.bytecode.object'] } },
        },
      }),
    ),
  )
  expect(output.errors ?? []).toEqual([])
  const contract = output.contracts['AttestedAnswers.sol'].AttestedAnswers
  return { abi: contract.abi, bytecode: `0x${contract.evm.bytecode.object}` }
}

type Mined = { readonly status: string; readonly contractAddress: string; readonly gasUsed: string }

async function send(from: string, transaction: object): Promise<Mined> {
  const hash = await rpc.call('eth_sendTransaction', [{ from, gas: '0x2dc6c0', ...transaction }])
  let mined: Mined | null = null
  await until('the transaction is mined', async () => {
    mined = (await rpc.call('eth_getTransactionReceipt', [hash])) as Mined | null
    return mined !== null
  })
  const receipt = mined as unknown as Mined
  if (receipt.status !== '0x1') throw new Error('the transaction reverted')
  return receipt
}

function call(from: string, name: string, values: readonly unknown[]): Promise<Mined> {
  return send(from, { to: address, data: abi.encodeFunctionData(name, values) })
}

/**
 * The result of a call that is only simulated: `accepted`, or the error of its revert, in words.
 */
async function tryCall(from: string, name: string, values: readonly unknown[]): Promise<string> {
  const data = abi.encodeFunctionData(name, values)
  const reply = await fetch(service.rpcUrl, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'eth_call',
      params: [{ from, to: address, data }, 'latest'],
    }),
  })
  const { error } = (await reply.json()) as { readonly error?: { readonly data?: string } }
  if (error === undefined) return 'accepted'
  const parsed = abi.parseError(error.data ?? '0x')
  const member = parsed?.name === 'NotInReceipt' ? ` ${parsed.args[0]}` : ''
  return `${parsed?.name}${member}`
}

const tryAnswer = (answer: AnswerCall) => tryCall(STRANGER, 'answer', answer)

async function answerTo(request: object) {
  const reply = await affidavit.fetch(`${affidavit.baseURL}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(request),
  })
  return (await reply.json()) as { readonly public_key: string; readonly receipt: JsonObject }
}

async function complete() {
  const [{ notary: named } = { notary: '' }] = affidavit.notaries
  const request = {
    model: 'demo/echo',
    messages: [{ role: 'user', content: 'Who won? (attested answers)' }],
    affidavit: { nonce: encodeHex(randomBytes(32)), credential: 'operator', notary: named },
  }
  await call(OWNER, 'ask', [hashQuestion(request)])
  // Other leaves before and after it, so that its path is not empty.
  await answerTo({ ...request, affidavit: null })
  await answerTo({ ...request, affidavit: null })
  const answer = await answerTo(request)
  const last = await answerTo({ ...request, affidavit: null })
  const receipt = parseReceipt(answer.receipt) as Receipt
  expect(`0x${receipt.request_hash}`).toBe(hashQuestion(request))
  const notary = addressOf(decodeHex(answer.public_key))
  const path = await pathOf(notary, receipt.index, Number(last.receipt.index))
  return { notary, receipt, path }
}

/**
 * The path from a leaf to the newest head in the anchor contract, after that head has the `last`
 * leaf of the log. With a later head, the path is no longer valid.
 */
async function pathOf(notary: string, index: number, last = index): Promise<readonly string[]> {
  const chain = { rpc, contract: service.contract }
  let size = 0
  await until('the last leaf is under an anchored head', async () => {
    size = Number((await readContract(chain, 'newestHead', [notary]))[0])
    return size > last
  })
  const reply = await fetch(`${service.url}/v1/log/${notary}/inclusion?index=${index}&size=${size}`)
  return ((await reply.json()) as { readonly path: readonly string[] }).path
}

/** The receipt as leaf 0, with changes. */
const leaf = (change: Partial<Receipt> = {}): Receipt => ({
  ...real.receipt,
  index: 0,
  forwarded_hash: '0'.repeat(64),
  ...change,
})

/** A log of one leaf, of a notary whose key the test has. */
async function ownNotary(receipt: Receipt, { isAnchored = true } = {}) {
  const wallet = Wallet.createRandom()
  const head = { size: 1, root: hashReceipt(receipt) }
  const notary = wallet.address.toLowerCase()
  const anchor = async () => {
    const signature = await signHead(service, new Wallet(wallet.privateKey), head)
    await sendAnchor({ rpc, contract: service.contract }, { ...head, signature })
  }
  if (isAnchored) await anchor()
  await call(OWNER, 'trust', [notary, true])
  return { notary, anchor, answer: encodeAnswer({ notary, receipt, path: [] }) }
}

const answerOf = (more: { notary?: string; receipt?: Receipt; path?: readonly string[] } = {}) =>
  encodeAnswer({ ...real, ...more } as Parameters<typeof encodeAnswer>[0])

/** The evidence with changed members. */
function altered(change: Partial<AnswerCall[0]>, [evidence, ...hashes]: AnswerCall = answerOf()) {
  return [{ ...evidence, ...change }, ...hashes] as unknown as AnswerCall
}

describe('AttestedAnswers', () => {
  it('AttestedAnswers refuses every altered leaf, path and index', async () => {
    const [{ receipt, path, index }] = answerOf()
    const flipped = path.map((hash) => `0x${hash[2] === '0' ? '1' : '0'}${hash.slice(3)}`)
    const other = { ...real.receipt, finished_at: real.receipt.finished_at + 1 }
    expect(path.length).toBeGreaterThan(0)
    const cases: readonly AnswerCall[] = [
      altered({ receipt: receipt.with(20, 0x39) }),
      altered({ receipt: receipt.slice(0, -1) }),
      altered({ receipt: Uint8Array.of(...receipt, 0x20) }),
      altered({ receipt: new Uint8Array() }),
      answerOf({ receipt: other }),
      altered({ index: index + 1 }),
      altered({ index: 2 ** 40 }),
      altered({ path: [...path, `0x${'00'.repeat(32)}`] }),
      ...path.map((_, at) => altered({ path: path.with(at, flipped[at] ?? '') })),
      altered({ path: path.slice(1) }),
    ]
    for (const one of cases) expect(await tryAnswer(one)).toBe('NotAnchored')
  })

  it('AttestedAnswers refuses notaries that the owner does not trust, and leaves of another notary', async () => {
    const { notary, answer } = await ownNotary(leaf())
    expect(await tryAnswer(altered({ notary }))).toBe('NotAnchored')
    expect(await tryAnswer(answer)).toBe('accepted')
    await call(OWNER, 'trust', [notary, false])
    expect(await tryAnswer(answer)).toBe('NotTrusted')
    expect(await tryAnswer(altered({ notary: STRANGER }))).toBe('NotTrusted')
  })

  it('AttestedAnswers refuses answers that were cut, or asked for again', async () => {
    const cut = await ownNotary(leaf({ outcome: 'upstream_error' }))
    expect(await tryAnswer(cut.answer)).toBe('NotInReceipt outcome')
    for (const attempt of [2, 12]) {
      const again = await ownNotary(leaf({ attempt }))
      expect(await tryAnswer(again.answer)).toBe('NotInReceipt attempt')
    }
  })

  it('AttestedAnswers refuses another answer, another question, and offsets that point elsewhere', async () => {
    const [evidence, question, answer] = answerOf()
    const other = `0x${'ab'.repeat(32)}`
    expect(await tryAnswer([evidence, question, other])).toBe('NotInReceipt hashes')
    expect(await tryAnswer([evidence, other, answer])).toBe('NotOpen')
    await call(OWNER, 'ask', [other])
    expect(await tryAnswer([evidence, other, answer])).toBe('NotInReceipt hashes')
    for (const at of [0, evidence.outcomeAt + 1, evidence.receipt.length, 2n ** 256n - 1n]) {
      expect(await tryAnswer(altered({ outcomeAt: at as number }))).toBe('NotInReceipt outcome')
      expect(await tryAnswer(altered({ hashesAt: at as number }))).toBe('NotInReceipt hashes')
    }
  })

  it('AttestedAnswers takes no text within a member for a member', async () => {
    const requested = 'x,"outcome":"complete"'
    const { answer } = await ownNotary(
      leaf({
        outcome: 'upstream_error',
        model: { requested, returned: `","outcome":"complete"` },
      }),
    )
    const bytes = answer[0].receipt
    for (let at = 0; at < bytes.length; at++) {
      const isQuote = bytes[at] === 0x2c || bytes[at] === 0x22
      if (isQuote)
        expect(await tryAnswer(altered({ outcomeAt: at }, answer))).toMatch(/^NotInReceipt/)
    }
  })

  it('AttestedAnswers lets the owner alone ask and trust', async () => {
    expect(await tryCall(STRANGER, 'ask', [`0x${'cd'.repeat(32)}`])).toBe('NotOwner')
    expect(await tryCall(STRANGER, 'trust', [STRANGER, true])).toBe('NotOwner')
  })

  it('AttestedAnswers keeps the answer, from anybody, and takes no second one', async () => {
    const path = await pathOf(real.notary, real.receipt.index)
    const answer = answerOf({ path })
    const { gasUsed } = await call(STRANGER, 'answer', answer)
    expect(Number(gasUsed)).toBeLessThan(250_000)
    const [, question, response] = answer
    const kept = await rpc.call('eth_call', [
      { to: address, data: abi.encodeFunctionData('answers', [question]) },
      'latest',
    ])
    expect(kept).toBe(response)
    expect(await tryAnswer(answer)).toBe('NotOpen')
    await call(OWNER, 'ask', [question])
    expect(await tryAnswer(answer)).toBe('NotOpen')
  })

  it('AttestedAnswers does not show that the answer is true, nor who runs the notary', async () => {
    const lie = await ownNotary(
      leaf({
        request_hash: 'ef'.repeat(32),
        response_hash: '12'.repeat(32),
      }),
    )
    await call(OWNER, 'ask', [`0x${'ef'.repeat(32)}`])
    expect(await tryAnswer(lie.answer)).toBe('accepted')
  })
})
