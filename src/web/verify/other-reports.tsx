import type { ComponentChildren } from 'preact'
import { encodeHex } from '#attestation/bytes.ts'
import { isOfPolicy } from '#attestation/nitro/attestation-error.ts'
import type { RuleOutcome } from '#attestation/nitro/facts.ts'
import type { Release } from '#attestation/release/release.ts'
import { Development, State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { CopyButton, Count, Hex, Time } from '../kit/values.tsx'
import type { ImageComparison } from './compare-image.ts'
import type { DocumentFound, ImageFound, JobOutcome } from './job.ts'
import { ReleaseLabel } from './release-name.tsx'
import { VerdictHeading } from './verdict.tsx'

function saysOfCode({
  facts,
  anyCode,
  isCodeKnown,
}: Extract<DocumentFound, { valid: true }>): string {
  if (facts.isDebugMode) return ', but its enclave is in debug mode: its code is unknown.'
  if (anyCode) return '. You accepted any code: see the measurements below.'
  return isCodeKnown
    ? ', and its code is as you expect.'
    : ', and has the measurements that you expect. They do not show which code runs.'
}

/** For an attestation document without other evidence. */
export function DocumentReport({
  found,
  children,
}: {
  readonly found: DocumentFound
  /** Shown under the verdict, as in each report. */
  readonly children?: ComponentChildren
}) {
  if (!found.valid)
    return (
      <>
        <VerdictHeading
          verdict={isOfPolicy(found.code) ? 'not_accepted' : 'invalid'}
          sentence={`Do not rely on this document. It was refused: ${found.code}.`}
        >
          <p>
            <OutsideText text={found.message} isOneLine={true} shownMax={500} />
          </p>
          <p>{documentAdvice(found.code)}</p>
        </VerdictHeading>
        {children}
        <RuleList rules={found.rules} />
      </>
    )
  const { facts, isDevelopment } = found
  return (
    <>
      <VerdictHeading
        verdict="verified"
        isDevelopment={isDevelopment}
        sentence={`The document is genuine${saysOfCode(found)}`}
      />
      {children}
      <dl class="pairs">
        <dt>Module</dt>
        <dd>
          <OutsideText text={facts.moduleId} isOneLine={true} shownMax={200} />
        </dd>
        <dt>Made</dt>
        <dd>
          <Time ms={facts.timestampMs} />
        </dd>
        <dt>Checked as of</dt>
        <dd>
          <Time ms={facts.verifiedAtMs} />
          {facts.mode === 'historical' && ', the document’s own time'}
        </dd>
        {[...facts.measurements]
          .filter(([, pcr]) => pcr.some((byte) => byte !== 0))
          .map(([index, pcr]) => (
            <HexPair key={index} name={`PCR${index}`} bytes={pcr} />
          ))}
        {facts.release !== null && (
          <>
            <dt>Release</dt>
            <dd>
              <ReleaseLabel release={facts.release} />
            </dd>
          </>
        )}
        <HexPair name="Public key" bytes={facts.publicKey} />
        <HexPair name="User data" bytes={facts.userData} />
        <HexPair name="Nonce" bytes={facts.nonce} />
      </dl>
      <Development.Provider value={isDevelopment}>
        <RuleList rules={facts.rules} />
      </Development.Provider>
    </>
  )
}

function documentAdvice(code: string): string {
  if (code === 'root_untrusted')
    return 'Does it come from a development enclave? The root is in DATA_DIR/nsm/root.crt.pem: give it under “Your policy”, “Roots”.'
  if (code === 'measurement_mismatch')
    return 'Give the expected code under “Your policy”: a release with its key, or measurements. To see what the document says, accept any code.'
  if (/not_yet|future/.test(code)) return 'Is this machine’s clock right? Set it, and check again.'
  if (/expired|too_old/.test(code))
    return 'An old document can be checked at its own time: under “Your policy”, choose “at its own time”. Then other evidence must show when it was made.'
  return 'Ask for the document again, from its source.'
}

function HexPair({ name, bytes }: { readonly name: string; readonly bytes: Uint8Array | null }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{bytes === null ? 'none' : <Hex value={encodeHex(bytes)} />}</dd>
    </>
  )
}

const RULE_TONES: Readonly<Record<RuleOutcome['outcome'], Tone>> = {
  passed: 'good',
  failed: 'bad',
  'not checked': 'open',
  reported: 'open',
}

function RuleList({ rules }: { readonly rules: readonly RuleOutcome[] }) {
  return (
    <>
      <h2>Rules</h2>
      <ol class="rules">
        {rules.map(({ rule, title, outcome, detail }) => (
          <li key={rule} value={rule}>
            <State tone={RULE_TONES[outcome]}>{outcome}</State> {title}
            {detail !== '' && (
              <span class="faint">
                {' '}
                (<OutsideText text={detail} isOneLine={true} shownMax={500} />)
              </span>
            )}
          </li>
        ))}
      </ol>
    </>
  )
}

const RELEASES_SHOWN = 50

export function ReleaseReport({
  file,
  judged,
  statuses,
  children,
}: Extract<JobOutcome, { kind: 'release' }> & { readonly children?: ComponentChildren }) {
  const { verdict, signers, trusted, needed } = judged
  const sentence = {
    verified: `Signed by ${trusted} of the keys that you trust.`,
    incomplete:
      'The signatures hold. The owners of the keys were not checked: give the keys that you trust.',
    not_accepted: `Do not rely on this: ${trusted} of the keys that you trust signed it, but ${needed} must sign it.`,
    invalid: 'Do not rely on this: a signature does not hold.',
  }[verdict]
  const entries = file.kind === 'release' ? [] : file.signed.list.releases
  return (
    <>
      <VerdictHeading verdict={verdict} sentence={sentence}>
        {verdict === 'incomplete' && <p>Under “Your policy”, give the keys that sign releases.</p>}
      </VerdictHeading>
      {children}
      <h2>Signatures</h2>
      <ul class="checks">
        {signers.map(({ public_key: key, holds, isTrusted }) => (
          <li key={key}>
            <State tone={holds ? 'good' : 'bad'}>{holds ? 'holds' : 'failed'}</State>{' '}
            <Hex value={key} />{' '}
            {isTrusted !== null && (
              <span>{isTrusted ? 'a key that you trust' : 'not trusted'}</span>
            )}
          </li>
        ))}
      </ul>
      {file.kind === 'release' ? (
        <ReleaseFacts release={file.signed.release} />
      ) : (
        <>
          <h2>
            {entries.length} releases, list issued {file.signed.list.issued_at}
          </h2>
          {entries.slice(0, RELEASES_SHOWN).map((entry, at) => {
            const { status, message } = statuses[at] ?? { status: '', message: '' }
            return (
              <section key={entry.release.measurements.PCR0} class="card">
                <h3>
                  <ReleaseLabel release={entry.release} />{' '}
                  <State tone={status === 'accepted' ? 'good' : 'bad'}>{status}</State>
                </h3>
                <p class="faint">
                  In documents made now{message === '' ? '.' : ': '}
                  <OutsideText text={message} isOneLine={true} shownMax={600} />
                </p>
                <ReleaseFacts release={entry.release} />
              </section>
            )
          })}
        </>
      )}
    </>
  )
}

function ReleaseFacts({ release }: { readonly release: Release }) {
  return (
    <dl class="pairs">
      <dt>Version</dt>
      <dd>
        <OutsideText text={release.version} isOneLine={true} shownMax={64} />
      </dd>
      <dt>Commit</dt>
      <dd>
        <Hex value={release.git_commit} />
      </dd>
      <dt>Created</dt>
      <dd>{release.created_at}</dd>
      <dt>Architecture</dt>
      <dd>{release.architecture}</dd>
      {Object.entries(release.measurements).map(([name, value]) => (
        <>
          <dt key={name}>{name}</dt>
          <dd>
            <Hex value={String(value)} />
          </dd>
        </>
      ))}
      <dt>Configuration</dt>
      <dd>
        {release.configuration === undefined ? (
          'not named: give your own policy'
        ) : (
          <Hex value={release.configuration} />
        )}
      </dd>
      <dt>Inputs</dt>
      <dd>
        <Count value={Object.keys(release.inputs).length} /> files besides the sources
      </dd>
    </dl>
  )
}

export function ImageReport({
  found,
  children,
}: {
  readonly found: ImageFound
  readonly children?: ComponentChildren
}) {
  if (!found.valid)
    return (
      <>
        <VerdictHeading verdict="invalid" sentence={`This image was not measured: ${found.code}.`}>
          <p>
            <OutsideText text={found.message} isOneLine={true} shownMax={500} />
          </p>
          <p>Is the file complete? Fetch or build it again, and compare its size.</p>
        </VerdictHeading>
        {children}
      </>
    )
  const { report, comparison } = found
  const { pcr0, pcr1, pcr2, pcr8 } = report.measurements
  const lines = [pcr0, pcr1, pcr2].map((pcr, index) => `PCR${index}=${encodeHex(pcr)}`)
  return (
    <>
      <ImageVerdict comparison={comparison} />
      {children}
      <dl class="pairs">
        {[pcr0, pcr1, pcr2].map((pcr, index) => (
          <HexPair key={encodeHex(pcr)} name={`PCR${index}`} bytes={pcr} />
        ))}
        <dt>PCR8</dt>
        <dd>{pcr8 === null ? 'zero: the image is not signed' : <Hex value={encodeHex(pcr8)} />}</dd>
        <dt>Size</dt>
        <dd>
          <Count value={report.sizeBytes} /> bytes
        </dd>
        <dt>Format</dt>
        <dd>
          EIF version {report.version}, {report.architecture}
        </dd>
      </dl>
      <p>
        <CopyButton text={lines.join('\n')} what="the measurements" /> PCR0, 1 and 2, in the form
        for “Your policy”
      </p>
      <h2>What the measurements do not say</h2>
      <ul>
        {report.warnings.map(({ message }) => (
          <li key={message}>
            <OutsideText text={message} isOneLine={true} shownMax={500} />
          </li>
        ))}
      </ul>
    </>
  )
}

function ImageVerdict({ comparison }: { readonly comparison: ImageComparison }) {
  switch (comparison.kind) {
    case 'not asked':
      return (
        <VerdictHeading
          verdict="incomplete"
          sentence="The image was measured. You gave no measurements to compare with."
        />
      )
    case 'same':
      return <VerdictHeading verdict="verified" sentence="This image measures what you expect." />
    case 'other':
      return (
        <VerdictHeading
          verdict="not_accepted"
          sentence="This image does not measure what you expect."
        />
      )
    case 'open':
      return (
        <VerdictHeading
          verdict="incomplete"
          sentence={`Not compared: you expect ${comparison.registers.map((index) => `PCR${index}`).join(', ')}, which only a running enclave has.`}
        >
          <p>
            For an image, expect only PCR0, 1, 2 and 8, or check the document of a running enclave.
          </p>
        </VerdictHeading>
      )
    case 'refused':
      return (
        <VerdictHeading
          verdict="not_accepted"
          sentence="The release of this image is not accepted now."
        >
          <p>
            <OutsideText text={comparison.message} isOneLine={true} shownMax={600} />
          </p>
        </VerdictHeading>
      )
  }
}
