import { readFile } from 'node:fs/promises'
import { expect } from 'vitest'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { parsePolicy, readPolicyFile } from '#attestation/report/policy-file.ts'
import { runCli } from '../run-cli.ts'
import type { SharedAffidavit } from '../use-affidavit.ts'

/** A stored call of an agent, as the list of records shows it. */
export type AgentCall = {
  readonly hash: string
  readonly dialect: string
  readonly request: { readonly body: { readonly stream?: boolean } }
}

/** An account that one agent uses alone, so that its records are the agent's calls. */
export type AgentAccount = {
  readonly apiKey: string
  /** Returns all calls, the first one first. Throws if one does not verify or is not complete. */
  verifyCalls(): Promise<readonly AgentCall[]>
}

/** Makes an account with a key. */
export async function openAgentAccount(
  { url, dataFolder, policyFile }: SharedAffidavit,
  name: string,
): Promise<AgentAccount> {
  const variables = { DATA_DIR: dataFolder }
  const { stdout } = await runCli(['keys', 'create', '--account', name], { variables })
  const apiKey = stdout.trim()
  const get = async (path: string) => {
    const reply = await fetch(`${url}/v1/verified/records${path}`, {
      headers: { authorization: `Bearer ${apiKey}` },
    })
    expect(reply.status).toBe(200)
    return new Uint8Array(await reply.arrayBuffer())
  }
  const policy = await readPolicyFile(parsePolicy(await readFile(policyFile)))
  return {
    apiKey,
    async verifyCalls() {
      const { completions } = JSON.parse(Buffer.from(await get('?limit=100')).toString()) as {
        readonly completions: readonly AgentCall[]
      }
      for (const { hash } of completions)
        await expect
          .poll(async () => verdictOn(await get(`/${hash}/evidence`), policy))
          .toBe('verified complete')
      return completions.toReversed()
    },
  }
}

async function verdictOn(evidence: Uint8Array, policy: BundlePolicy): Promise<string> {
  const { verdict, facts } = await verifyBundle(parseExactJson(evidence), policy)
  return `${verdict} ${facts?.outcome}`
}
