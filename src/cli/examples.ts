import type { Command } from 'commander'

/**
 * Examples by command, without the program's name. Each example maps the words after the command to
 * a description.
 */
export const EXAMPLES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  verify: {
    'evidence.json --policy policy.json': 'a bundle, by the file from your vendor',
    'proof.json --policy policy.json': 'a proof that the client or the proxy saved',
    'run.json --policy policy.json': "all calls of an agent's run (`affidavit proxy --session`)",
    'evidence.json --policy policy.json --rpc URL': 'also that the chain has its block',
    'HASH --url https://gateway.example --policy policy.json': 'the evidence that a gateway has',
    'evidence.html --policy policy.json': 'the evidence in a saved page',
  },
  'policy make': {
    '--release releases.json --release-key 3b6a27bc… --output policy.json':
      'the key is from where the vendor publishes it, and never from the gateway',
    '--from policy.json --from tinfoil.json --output attested.json':
      'a policy with the parts of both',
  },
  'policy show': { 'policy.json': 'what it accepts, and what it leaves open' },
  complete: { 'proofs/*.json --url https://gateway.example --key $KEY': 'all proofs of a folder' },
  audit: {
    'https://gateway.example --rpc https://chain.example --policy policy.json': 'all logs',
    'https://gateway.example --notary 0x… --state audit.json': 'one log; go on where it ended',
  },
  evidence: {
    'HASH --url https://gateway.example --output evidence.json': 'without question and answer',
    'HASH --url https://gateway.example --key $KEY': 'with question and answer, if not encrypted',
    'HASH --url https://gateway.example --html --output evidence.html': 'to open in a browser',
  },
  redact: { 'evidence.json --request --output redacted.json': 'leave out the question' },
  attestation: {
    'document.b64 --policy policy.json': 'a document that was just made',
    '- --historical --any-measurement < document.b64': 'an old one, with any code',
  },
  provider: {
    'https://gateway.example --policy policy.json': 'the evidence that a gateway collected',
    'evidence.json --policy policy.json': 'the evidence in a bundle, at the time of its receipt',
    'provider-evidence.json': 'what it holds, under no policy',
  },
  verifier: {
    '': 'to compare with what a saved page names',
    '--output verify.html': 'the page itself, to check files in a browser without a network',
  },
  proxy: {
    '--url https://gateway.example --policy policy.json --save proofs':
      'serve http://127.0.0.1:8787/v1, and keep the proofs',
    '--url https://gateway.example --policy attested.json':
      'send calls only to this provider in a TEE',
  },
  measure: { 'enclave.eif': 'print PCR0, PCR1 and PCR2' },
  'release key': { 'release.key.pem': 'create a key, and print its public half' },
  'release sign': { 'measurements.json --key release.key.pem': 'sign what a build measured' },
  'release show': { 'releases.json --release-key 3b6a27bc…': 'what a list accepts now' },
  'release list add': {
    'releases.json measurements.json --key release.key.pem --release-key 3b6a27bc…': '',
  },
  'release list end': {
    'releases.json 1.4.0 --key release.key.pem --release-key 3b6a27bc… --at now': '',
  },
  'release list revoke': {
    'releases.json 1.4.0 --key release.key.pem --release-key 3b6a27bc… --reason "…"': '',
  },
  'release list renew': {
    'releases.json --key new.key.pem --release-key 3b6a27bc…': 'change who signs',
  },
  'release list sign': { 'releases.json --key second.key.pem': 'a second signature' },
  'keys create': {
    '--account acme --name "billing service"': 'a key that may call',
    '--account acme --scopes nodes --expires 90d': 'a key for a node agent',
  },
  'keys list': { '': 'every key, without its secret' },
  'keys set-budget': { 'ID requests day 1000': 'at most 1000 requests a day (UTC)' },
  'keys revoke': { ID: 'the key is invalid at once' },
  'accounts create': { 'acme --tier large': 'an account with the limits of a tier' },
  'accounts list': { '': '' },
  'accounts disable': { acme: 'its keys no longer work' },
  'accounts enable': { acme: 'its keys work again' },
  'accounts delete': { acme: 'the account and its keys; its records stay' },
  'accounts set-budget': { 'acme money month 250': 'at most 250 a month, by PRICES_FILE' },
  'accounts set-tier': { 'acme large': '' },
  'accounts set-retention': { 'acme 30': 'erase questions and answers after 30 days' },
  budgets: { '--account acme': 'what is used and left' },
  'admin-log': { '--since 2027-01-01 --kind key.create': 'who created keys', '--check': '' },
  usage: { '--from 2027-01-01 --to 2027-02-01 --by account --csv': 'a month, for an invoice' },
  erase: {
    'HASH --reason "asked by the customer"': 'one completion',
    '--account acme --reason "asked by the customer"': 'all of an account',
  },
  'content key': { '': 'a line for CONTENT_KEY_FILE' },
  'content keys': { '': '' },
  'content encrypt': { '': 'encrypt with the newest key what another key encrypted' },
  'enclaves list': { '': '' },
  'enclaves add': { 'unix:/run/affidavit/enclave-2.sock': '' },
  'enclaves drain': { 'unix:/run/affidavit/enclave-1.sock': 'wait until its calls have ended' },
  'enclaves remove': { 'unix:/run/affidavit/enclave-1.sock': '' },
  'relayer key': { 'relayer.key': 'create a key, and print its address' },
  'relayer withdraw': { '--rpc https://chain.example --to 0x…': 'of the key in the environment' },
  'contract deploy': { '--rpc https://chain.example': 'by DEPLOYER_PRIVATE_KEY' },
  migrate: { '': 'before the gateways of a new version start' },
  'node run': {
    '--url https://gateway.example --key $KEY': 'all models of the server that it finds here',
    '--backend http://127.0.0.1:11434 --model llama3.2': 'one model of one server',
  },
  'node list': { '': 'the nodes of your account' },
  'node create': { '"my machine"': 'print its id' },
  'node status': { '': 'is it connected, and what does it serve' },
  'node stats': { '': 'requests, tokens and times' },
  'node benchmark': { '--model llama3.2': 'measure, without a report to the gateway' },
  completions: { 'bash >> ~/.bashrc': '' },
  help: { verify: 'the same as affidavit verify --help', 'keys create': '' },
}

export function addExamples(command: Command, words: readonly string[] = []): void {
  for (const child of command.commands) addExamples(child, [...words, child.name()])
  const examples = EXAMPLES[words.join(' ')] ?? EXAMPLES[['node', ...words].join(' ')]
  if (examples === undefined) return
  const lines = Object.entries(examples).map(([rest, what]) => ({
    call: [nameOf(command), rest].join(' ').trim(),
    what,
  }))
  const width = Math.max(...lines.map(({ call }) => call.length))
  const text = lines.map(({ call, what }) => `  ${call.padEnd(width)}  ${what}`.trimEnd())
  command.addHelpText('after', `\nExamples:\n${text.join('\n')}`)
}

/** Returns a name such as `affidavit keys create`. */
function nameOf(command: Command): string {
  return command.parent === null ? command.name() : `${nameOf(command.parent)} ${command.name()}`
}
