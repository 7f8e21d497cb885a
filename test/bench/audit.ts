import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { secp256k1 } from '@noble/curves/secp256k1.js'
import { recover } from 'tiny-secp256k1'
import type { Affidavit } from '../support/affidavit.ts'

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')

/**
 * The time of an audit for one record, as a multiple of one bare recovery of a signer, which is the
 * least work. The audit makes every check (heads, leaves, anchors on the chain, records, their
 * documents). It is a separate process, against a running gateway on the same machine.
 */
export async function compareAudit(affidavit: Affidavit): Promise<number> {
  // Until then the last anchors are mined, and the gateway is idle again.
  await new Promise((resolve) => setTimeout(resolve, 5_000))
  measureStart(affidavit)
  const startMs = measureStart(affidavit)
  const whole = runAudit(affidavit)
  const perSecond = whole.records / ((whole.ms - startMs) / 1_000)
  const bare = measureRecovery()
  console.log(
    `${whole.records} records under ${whole.heads} heads: ${(whole.ms / 1_000).toFixed(1)} s, of them ` +
      `${(startMs / 1_000).toFixed(1)} s for starting up; ${perSecond.toFixed(0)} records per second`,
  )
  console.log(
    `  bare recoveries of a signer: ${bare.toFixed(0)} per second; the audit takes ${(bare / perSecond).toFixed(1)} × as long for a record`,
  )
  return bare / perSecond
}

type AuditRun = { readonly ms: number; readonly records: number; readonly heads: number }

function runAudit(affidavit: Affidavit): AuditRun {
  const words = [
    affidavit.url,
    '--rpc',
    affidavit.rpcUrl,
    '--root',
    affidavit.rootFile,
    '--any-measurement',
  ]
  const start = performance.now()
  const { status, stdout, stderr } = runCommand(affidavit, ['audit', ...words, '--json'])
  const ms = performance.now() - start
  if (status !== 0)
    throw new Error(`the audit failed: ${stdout.slice(0, 2_000)}${stderr.slice(0, 2_000)}`)
  return { ms, ...countOf(JSON.parse(stdout)) }
}

/** Milliseconds until the command line is loaded and prints its help. */
function measureStart(affidavit: Affidavit): number {
  const start = performance.now()
  runCommand(affidavit, ['audit', '--help'])
  return performance.now() - start
}

function runCommand(affidavit: Affidavit, words: readonly string[]) {
  return spawnSync(process.execPath, [MAIN, ...words], {
    env: {
      PATH: process.env.PATH,
      AFFIDAVIT_URL: affidavit.url,
      AFFIDAVIT_API_KEY: affidavit.apiKey,
    },
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  })
}

function measureRecovery(): number {
  const secretKey = secp256k1.utils.randomSecretKey()
  const digest = crypto.getRandomValues(new Uint8Array(32))
  const signature = secp256k1.sign(digest, secretKey, { prehash: false, format: 'recovered' })
  const [bit = 0] = signature
  const runs = 2_000
  const start = performance.now()
  for (let run = 0; run < runs; run++)
    recover(digest, signature.subarray(1), bit === 1 ? 1 : 0, false)
  return runs / ((performance.now() - start) / 1_000)
}

function countOf({
  logs,
}: {
  readonly logs: readonly { readonly to: number; readonly heads: number }[]
}) {
  return {
    records: logs.reduce((sum, { to }) => sum + to, 0),
    heads: logs.reduce((sum, { heads }) => sum + heads, 0),
  }
}
