import type { Command } from 'commander'
import {
  type AttestationOptions,
  addAttestationOptions,
  demandsAttestation,
  readAttestationPolicy,
} from '../attestation-options.ts'
import { readCliConfig } from '../config.ts'
import { EXIT_CODES } from '../exit-codes.ts'
import { isUrl, readSource } from '../read-source.ts'
import { readSubjects } from '../read-subjects.ts'
import { printJson, printText, type SubjectReport } from '../verify-report.ts'
import { verifySubject } from '../verify-subject.ts'

type VerifyOptions = AttestationOptions & {
  readonly request?: string
  readonly key?: string
  readonly json?: boolean
}

/** Adds `verify SOURCE`, which checks records by themselves; README.md of src/cli says what its outcome means. */
export function registerVerify(program: Command): void {
  const command = program
    .command('verify')
    .description('check a record: hashes, signature, receipt, log, and who holds the key')
    .argument('<source>', 'a file, an http(s) URL, or - for standard input')
    .option('--request <file>', 'body of the request, when the source is an answer rather than a record')
    .option('--key <key>', 'API key for a URL (better: in AFFIDAVIT_API_KEY)')
    .option('--json', 'print one JSON object')
  addAttestationOptions(command)
    .addHelpText('after', HELP)
    .action(async (source: string, options: VerifyOptions) => {
      const reports = await verifySource(source, options)
      process.stdout.write(options.json ? printJson(reports) : printText(reports))
      process.exitCode = reports.every((report) => report.ok) ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

const HELP = `
The source is a record, a page of the history, or (with --request) an answer or event stream as it came.
The attestation document is verified when --pcr, --any-measurement or --root is given, at its own time.
Exit codes: 0 nothing failed, 1 a check failed or there was nothing to check, 2 usage.`

async function verifySource(source: string, options: VerifyOptions): Promise<readonly SubjectReport[]> {
  const policy = demandsAttestation(options) ? await readAttestationPolicy(options) : null
  const input = await readSource(source, { apiKey: keyFor(source, options), stdin: process.stdin })
  const body = options.request === undefined ? null : await readSource(options.request, LOCAL)
  return Promise.all(readSubjects(input, body).map((subject) => verifySubject(subject, policy)))
}

const LOCAL = { apiKey: null, stdin: process.stdin } as const

/** The environment is looked at for a URL alone: a file needs no key, and no complaint about one. */
function keyFor(source: string, options: VerifyOptions): string | null {
  if (!isUrl(source)) return null
  return options.key ?? readCliConfig().apiKey
}
