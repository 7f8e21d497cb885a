import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Affidavit } from '../support/affidavit.ts'
import { runCli } from '../support/run-cli.ts'

/** What there is to be seen. */
export type Scene = {
  readonly service: Affidavit
  /** The log of the one enclave. */
  readonly notary: string
  /** A completion that is anchored. */
  readonly hash: string
  /** Its evidence, as text. */
  readonly bundle: string
  /** The URL of the evidence, saved as one HTML file. */
  readonly savedFile: string
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
  const scopes = 'inference,nodes,history:all,admin'
  const created = await runCli(['keys', 'create', '--name', 'operator', '--scopes', scopes], {
    variables: { DATA_DIR: service.dataFolder },
  })
  const adminKey = created.stdout.trim().split('\n').at(-1) ?? ''
  if (created.code !== 0) throw new Error(`no key was made: ${created.stderr}`)
  const caller: Caller = { url: service.url, apiKey: adminKey }
  const hashes: string[] = []
  for (const content of QUESTIONS) {
    const answer = await ask<{ readonly hash: string }>(
      caller,
      '/v1/verified/chat/completions',
      JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content }] }),
    )
    hashes.push(answer.hash)
  }
  const hash = hashes[2] ?? ''
  const { logs } = await ask<{ readonly logs: readonly { readonly notary: string }[] }>(
    caller,
    '/v1/log',
  )
  const evidence = `/v1/verified/chat/completions/${hash}/evidence`
  let bundle = await ask<{ readonly block: unknown }>(caller, evidence)
  for (let tries = 0; tries < 60 && bundle.block === null; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 500))
    bundle = await ask(caller, evidence)
  }
  const saved = await runCli(['evidence', hash, '--html'], {
    variables: { AFFIDAVIT_URL: service.url, AFFIDAVIT_API_KEY: adminKey },
  })
  if (saved.code !== 0) throw new Error(`no file was saved: ${saved.stderr}`)
  // It goes with the service's folder.
  const savedFile = join(service.dataFolder, 'evidence.html')
  await writeFile(savedFile, saved.stdout)
  return {
    service,
    hash,
    adminKey,
    notary: logs[0]?.notary ?? '',
    bundle: JSON.stringify(bundle),
    savedFile: String(pathToFileURL(savedFile)),
  }
}

type Caller = Pick<Affidavit, 'url' | 'apiKey'>

async function ask<Answer>({ url, apiKey }: Caller, path: string, body?: string): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
    },
    ...(body === undefined ? {} : { body }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`)
  return JSON.parse(text) as Answer
}
