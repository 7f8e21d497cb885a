import type { Affidavit } from '../support/affidavit.ts'
import { runCli } from '../support/run-cli.ts'

/** What there is to be seen. */
export type Scene = {
  readonly service: Affidavit
  /** The log of the one enclave. */
  readonly notary: string
  /** A completion that is anchored. */
  readonly hash: string
  /** Its evidence bundle, as text. */
  readonly bundle: string
  /** A key for everything. */
  readonly adminKey: string
}

const QUESTIONS = [
  'Which articles of the treaty deal with arbitration?',
  'Summarise the attached discharge letter for the insurer.',
  'Is clause 7.2 compatible with the framework agreement?',
  'Translate the notice of termination into German.',
  'List the open points of the audit, by severity.',
]

/** Makes completions, and a key of the operator's. */
export async function prepareScene(service: Affidavit): Promise<Scene> {
  const hashes: string[] = []
  for (const content of QUESTIONS) {
    const answer = await ask<{ readonly hash: string }>(
      service,
      '/v1/verified/chat/completions',
      JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content }] }),
    )
    hashes.push(answer.hash)
  }
  const hash = hashes[2] ?? ''
  const { logs } = await ask<{ readonly logs: readonly { readonly notary: string }[] }>(
    service,
    '/v1/log',
  )
  const evidence = `/v1/verified/chat/completions/${hash}/evidence`
  let bundle = await ask<{ readonly anchor?: { readonly block?: unknown } }>(service, evidence)
  for (let tries = 0; tries < 60 && !bundle.anchor?.block; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 500))
    bundle = await ask(service, evidence)
  }
  const scopes = 'inference,nodes,history:all,admin'
  const created = await runCli(['keys', 'create', '--name', 'operator', '--scopes', scopes], {
    variables: { DATA_DIR: service.dataFolder },
  })
  const adminKey = created.stdout.trim().split('\n').at(-1) ?? ''
  if (created.code !== 0) throw new Error(`no key was made: ${created.stderr}`)
  return {
    ...{ service, hash, adminKey },
    notary: logs[0]?.notary ?? '',
    bundle: JSON.stringify(bundle),
  }
}

async function ask<Answer>(service: Affidavit, path: string, body?: string): Promise<Answer> {
  const response = await fetch(`${service.url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
    },
    ...(body === undefined ? {} : { body }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`)
  return JSON.parse(text) as Answer
}
