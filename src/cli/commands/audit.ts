import { type Command, InvalidArgumentError } from 'commander'
import type { AuditOptions } from '../audit/run-audit.ts'
import { EXIT_CODES } from '../faults.ts'
import {
  addAttestationOptions,
  collectText,
  parseBaseUrl,
  parseRpcUrl,
  parseSeconds,
} from '../options.ts'

/** audit/codes.md describes the findings. */
export function registerAudit(program: Command): void {
  const command = program
    .command('audit')
    .summary("check a gateway's whole log, and report what is missing or contradictory")
    .description(
      "Check a gateway's logs from outside: every head must be signed, larger than the one " +
        'before, and match the served leaves. With --rpc: every anchor must be on the chain, ' +
        'every head there must be served, and no log may be hidden. With a key: every record ' +
        'must match its leaf.',
    )
    .argument('<url>', "the gateway's base URL", parseBaseUrl)
    .option('--notary <address>', 'only this log', parseNotary)
    .option('--rpc <url>', 'JSON-RPC endpoint of the chain', parseRpcUrl)
    .option(
      '--from <leaf>',
      'check records and anchors from this leaf on; leaf hashes are read from the first leaf on',
      parseCount,
    )
    .option('--to <leaves>', 'end at the first head of at least so many leaves', parseCount)
    .option('--from-block <number>', 'first block in which heads are looked for', parseCount)
    .option(
      '--key <key>',
      'API key, to check records too (better: in AFFIDAVIT_API_KEY, which goes to AFFIDAVIT_URL alone)',
    )
    .option('--no-records', 'do not check records, even with a key')
    .option('--own-records', 'the key sees only its own records: do not report others as missing')
    .option('--state <file>', 'keep the state of the audit there, and continue from it')
    .option('--timeout <seconds>', 'longest wait for one answer (default: 60)', parseSeconds)
    .option('--json', 'print one JSON object')
    .option(
      '--configuration <digest|file>',
      'accepted boot configuration, never from the gateway; may be repeated',
      collectText,
    )
  addAttestationOptions(command)
    .addHelpText(
      'after',
      '\nThe conclusion is CLEAN for logs that have leaves; when all logs are empty, it is ' +
        'NOTHING TO CHECK.' +
        '\nExit codes: 0 nothing found (also in empty logs), 1 something missing, contradictory ' +
        'or unreadable, or the gateway did not answer (gateway_unreachable), 2 usage, 3 a file ' +
        'cannot be read, or the chain of --rpc was not reached.',
    )
    .action(async (url: string, options: AuditOptions) => {
      const { runAudit } = await import('../audit/run-audit.ts')
      const { output, isClean } = await runAudit(url, options)
      process.stdout.write(output)
      process.exitCode = isClean ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

function parseNotary(text: string): string {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text))
    throw new InvalidArgumentError('expected an address: 0x and 40 hex digits')
  return text.toLowerCase()
}

function parseCount(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('expected a whole number')
  return Number(text)
}
