import type { Command } from 'commander'
import type { VerifyOptions } from '../evidence/verify-source.ts'
import { addBundleOptions, addGatewayOptions } from '../options.ts'

/** README.md of src/cli explains the outcomes. */
export function registerVerify(program: Command): void {
  const command = program
    .command('verify')
    .description(
      'check evidence or a record: hashes, signature, receipt, log, ' + 'anchor, who holds the key',
    )
    .argument(
      '<source...>',
      'a file, a folder, an http(s) URL, - for standard input, or the hash of a completion',
    )
    .option('--json', 'print one JSON object')
    .optionsGroup('What you kept of the call:')
    .option('--request <file>', 'the body that was sent: the evidence must belong to this request')
    .option(
      '--answer <file>',
      'the answer that came, as JSON, as a kept stream or as evidence: the evidence must belong ' +
        'to this answer',
    )
    .option(
      '--idempotent',
      'the call had an Idempotency-Key: its stream may be a repetition that is divided differently',
    )
  addGatewayOptions(addBundleOptions(command))
    .addHelpText('after', HELP)
    .action(async (sources: readonly string[], options: VerifyOptions) => {
      const { verifySources } = await import('../evidence/verify-source.ts')
      process.exitCode = await verifySources(sources, options)
    })
}

const HELP = `
The source is evidence of one call, or of several, one per line (a session of an agent), a saved page (only its
evidence is read), a record, a page of the history, or (with --request) an answer or event stream as it came. For a
completion's hash, the evidence is fetched from the gateway at --url: the evidence of another hash is refused.
With --request and --answer, what you sent and received is compared with the evidence; a difference is INVALID.
Evidence of an encrypted call has no content: these files, or the evidence that the client saved as --answer, complete it.
The question and the answer are printed from the evidence, shortened and escaped.
The verdict: VERIFIED, every necessary check passed. INCOMPLETE, nothing failed, but something needed was not checked:
it says what to bring. NOT ACCEPTED, nothing contradicts the evidence, but your policy does not accept this enclave,
release, root or provider: it says what was expected, and what was found. INVALID, it was changed or forged.
What you do not give is not checked, and never counts as passed: accepted measurements (--policy; --release with
--release-key, or --pcr), the accepted boot configuration (--policy, --configuration), the provider's machine (--policy),
the chain (--rpc). The attestation document of evidence is always verified, with AWS's root or --root; that of a
record only with --policy, --release, --pcr,
--any-measurement, --allow-debug, --root or --crl. Both are verified at their own time, and releases are compared with
that time, too.
An answer that was cut (outcome client_disconnected or upstream_error) is INCOMPLETE at best, unless
--allow-outcome names its outcome.
A record, an answer or a stream alone is INCOMPLETE at best: it has neither the boot configuration nor the anchor.
Exit codes: 0 VERIFIED; 1 INVALID or NOT ACCEPTED, or the gateway gave other evidence; 2 usage, or a file that is not
JSON; 3 INCOMPLETE, or no result: no such file, no answer, no access, or the chain was not reached.`
