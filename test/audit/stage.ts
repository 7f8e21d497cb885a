import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { decodeBase64 } from '#attestation/bytes.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { BuiltLog } from '../support/audited-log.ts'
import { type EquivocatingServer, startEquivocatingServer } from '../support/equivocating-server.ts'
import { runCommand } from '../support/run-command.ts'

/** What one run of `affidavit audit --json` gave. */
export type AuditRun = {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
  /** Codes of all findings, in alphabetical order, each once. */
  readonly codes: readonly string[]
  readonly findings: readonly {
    readonly code: string
    readonly where: string
    readonly message: string
    readonly earlier: boolean
  }[]
  /** What became of each check of the first log. */
  readonly outcomes: Readonly<Record<string, string>>
  /** What became of each check of the gateway as a whole. */
  readonly gateway: Readonly<Record<string, { readonly outcome: string; readonly detail: string }>>
  readonly logs: readonly {
    readonly from: number
    readonly to: number
    readonly heads: number
    readonly complete: boolean
  }[]
}

export type Stage = {
  readonly server: EquivocatingServer
  readonly folder: string
  /** Options that trust the root of a log's documents. */
  trust(log: BuiltLog): Promise<readonly string[]>
  audit(...words: readonly string[]): Promise<AuditRun>
  close(): Promise<void>
}

/** Sets a server and a folder up, and runs audits against them. */
export async function openStage(): Promise<Stage> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-audit-'))
  const server = await startEquivocatingServer()
  return {
    server,
    folder,
    async trust({ document, notary }) {
      const path = join(folder, `${notary.account.notary}.der`)
      const [root] = decodeAttestationPayload(decodeBase64(document)).cabundle
      await writeFile(path, root ?? new Uint8Array())
      return ['--root', path]
    },
    async audit(...words) {
      const { code, stdout, stderr } = await runCommand('audit', server.url, '--json', ...words)
      const report = JSON.parse(stdout === '' ? '{"logs":[],"findings":[]}' : stdout)
      const findings = [
        ...report.findings,
        ...report.logs.flatMap((log: { findings: object[] }) => log.findings),
      ]
      const checks = report.logs[0]?.checks ?? []
      return {
        code,
        stdout,
        stderr,
        findings,
        codes: [...new Set(findings.map((finding) => finding.code))].sort(),
        outcomes: Object.fromEntries(
          checks.map(({ name, outcome }: Record<string, string>) => [name, outcome]),
        ),
        gateway: Object.fromEntries(
          (report.checks ?? []).map((check: { name: string; outcome: string; detail: string }) => [
            check.name,
            check,
          ]),
        ),
        logs: report.logs,
      }
    },
    close: async () => {
      await server.close()
      await rm(folder, { recursive: true })
    },
  }
}
