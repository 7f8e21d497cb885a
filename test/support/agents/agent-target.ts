import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect } from 'vitest'
import { readEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { parsePolicy, readPolicyFile } from '#attestation/report/policy-file.ts'
import type { SessionCheckName } from '#attestation/session/session-checks.ts'
import { verifySession } from '#attestation/session/verify-session.ts'
import { startProxyProgram } from '../proxy-program.ts'
import { runCli } from '../run-cli.ts'
import type { SharedAffidavit } from '../use-affidavit.ts'
import { type AgentCall, openAgentAccount } from './agent-account.ts'
import { LOOPBACK_ORIGIN, type Loopback, openLoopback } from './loopback.ts'

/** What an agent asks: the gateway, or `affidavit proxy --session` before it. */
export type AgentTarget = {
  readonly apiKey: string
  /** Runs programs in a namespace that reaches the target alone. */
  readonly run: Loopback['run']
  /**
   * Checks that the evidence of all calls holds, and that broken evidence does not. Returns the
   * calls, the first one first. The agent must have ended.
   */
  verifyCalls(): Promise<readonly AgentCall[]>
  close(): Promise<void>
}

/** A kind of target, with the base URLs of its agents. */
export type TargetKind = {
  readonly name: string
  /** For clients of OpenAI. */
  readonly openai: string
  /** For clients of Anthropic, without `/v1`. */
  readonly anthropic: string
  /** Opens a target with an account of its own. `folder`: for its files. */
  open(
    service: SharedAffidavit,
    account: { readonly name: string; readonly folder: string },
  ): Promise<AgentTarget>
}

export const GATEWAY_TARGET: TargetKind = {
  name: 'the gateway',
  openai: `${LOOPBACK_ORIGIN}/v1/verified`,
  anthropic: `${LOOPBACK_ORIGIN}/v1/verified/anthropic`,
  async open(service, { name }) {
    const { apiKey, verifyCalls } = await openAgentAccount(service, name)
    const { run, close } = await openLoopback(service.url)
    return { apiKey, run, verifyCalls, close }
  },
}

export const PROXY_TARGET: TargetKind = {
  name: 'affidavit proxy',
  openai: `${LOOPBACK_ORIGIN}/v1`,
  anthropic: LOOPBACK_ORIGIN,
  async open(service, { name, folder }) {
    const { apiKey } = await openAgentAccount(service, `${name} through the proxy`)
    const file = join(folder, 'run.json')
    const program = await startProxyProgram(service, ['--session', file])
    const { run, close } = await openLoopback(program.baseURL)
    return {
      apiKey,
      run,
      async verifyCalls() {
        await endSession(program.baseURL, apiKey)
        const { code, output } = await program.stop()
        expect(code, output).toBe(0)
        const calls = await verifySessionFile(file, service)
        expect(output).toContain(`${calls.length} checked, 0 refused`)
        // The last call is of this test.
        return calls.slice(0, -1)
      },
      async close() {
        await program.stop()
        await close()
      },
    }
  },
}

/** An agent's run has no natural last call. This one says that it is the last one. */
async function endSession(baseURL: string, apiKey: string): Promise<void> {
  const reply = await fetch(`${baseURL}/responses`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'affidavit-last': 'true',
    },
    body: JSON.stringify({ model: 'demo/echo', input: 'Done' }),
  })
  expect(reply.status).toBe(200)
  await reply.arrayBuffer()
}

/** Checks a file as its receiver does, offline: as it is, and broken in every way. */
async function verifySessionFile(
  file: string,
  { policyFile }: Pick<SharedAffidavit, 'policyFile'>,
): Promise<readonly AgentCall[]> {
  const given = readEvidenceLines(await readFile(file)) ?? []
  const verified = await runCli(['verify', file, '--policy', policyFile])
  expect(verified, verified.stdout).toMatchObject({ code: 0, stderr: '' })
  expect(verified.stdout).toMatch(/^VERIFIED: /)
  expect(verified.stdout).toContain(`These are ${given.length} calls of one session`)
  const policy = await readPolicyFile(parsePolicy(await readFile(policyFile)))
  for (const [wrong, calls] of Object.entries(breakCalls(given))) {
    const report = await verifySession(calls, policy)
    const found = report.checks.find(({ name }) => name === wrong)?.outcome
    const [outcome, verdict] =
      wrong === 'signed end' ? ['not checked', 'incomplete'] : ['failed', 'invalid']
    expect([wrong, found, report.verdict]).toEqual([wrong, outcome, verdict])
  }
  return given.map((call) => {
    const { record } = call as unknown as {
      readonly record: {
        readonly hash: string
        readonly request: AgentCall['request']
        readonly receipt: { readonly dialect: string }
      }
    }
    return { hash: record.hash, dialect: record.receipt.dialect, request: record.request }
  })
}

/** The calls of a session, broken in one way each, by the check that must find it. */
function breakCalls(
  calls: readonly JsonObject[],
): Readonly<Partial<Record<SessionCheckName, readonly JsonObject[]>>> {
  const [first = {}, second = {}, ...rest] = calls
  const altered = structuredClone(second) as unknown as { record: { response: object } }
  altered.record.response = { ...altered.record.response, model: 'another' }
  return {
    'evidence of calls': [first, altered as unknown as JsonObject, ...rest],
    'none missing': [first, ...rest],
    'previous hash': [second, ...rest],
    'none doubled': [first, second, second, ...rest],
    order: [first, ...rest.slice(0, 1), second, ...rest.slice(1)],
    'signed end': calls.slice(0, -1),
  }
}
