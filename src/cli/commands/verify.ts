import type { Command } from 'commander'
import { decodeAttestationPayload } from '../../../attestation/nitro/document.ts'
import { verifyRecord } from '../../../attestation/verify-record.ts'
import { readCliConfig } from '../config.ts'
import { EXIT_CODES } from '../exit-codes.ts'
import { readSource } from '../read-source.ts'
import { readSubjects, type Subject } from '../read-subjects.ts'
import { judgeReport, printJson, printText, type SubjectReport } from '../verify-report.ts'

type VerifyOptions = { readonly request?: string; readonly key?: string; readonly json?: boolean }

/** Adds `verify SOURCE`, which checks records by themselves; README.md of this folder says what its outcome means. */
export function registerVerify(program: Command): void {
  program
    .command('verify')
    .description(
      'check a record: hashes, signature, receipt, and that the attestation document names the key',
    )
    .argument('<source>', 'a file, an http(s) URL, or - for standard input')
    .option('--request <file>', 'body of the request, when the source is an answer rather than a record')
    .option('--key <key>', 'API key for a URL (better: in AFFIDAVIT_API_KEY)')
    .option('--json', 'print one JSON object')
    .action(async (source: string, options: VerifyOptions) => {
      const reports = await verifySource(source, options)
      process.stdout.write(options.json ? printJson(reports) : printText(reports))
      process.exitCode = reports.every((report) => report.ok) ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

async function verifySource(source: string, options: VerifyOptions): Promise<readonly SubjectReport[]> {
  const apiKey = options.key ?? readCliConfig().apiKey
  const input = await readSource(source, { apiKey, stdin: process.stdin })
  const body =
    options.request === undefined
      ? null
      : await readSource(options.request, { apiKey: null, stdin: process.stdin })
  return readSubjects(input, body).map(verifySubject)
}

function verifySubject({ record, request }: Subject): SubjectReport {
  const given = request === undefined ? {} : { request }
  return judgeReport(
    record,
    verifyRecord(record, { ...given, decodeAttestation: decodeAttestationPayload }),
    [],
  )
}
