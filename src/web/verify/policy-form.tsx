import { useId, useState } from 'preact/hooks'
import { FaultNotice } from '../kit/notices.tsx'
import { FilesField, TextField, Tick } from './fields.tsx'
import type { FormPolicy } from './job.ts'
import { PolicyFault } from './policy-fault.ts'

/** Asks what the reader expects, before or after the reader gives the evidence. */
export function PolicyForm({
  given,
  readFile,
  onChange: set,
}: {
  readonly given: FormPolicy
  /** Runs in a worker if the page itself does not load cryptography. */
  readonly readFile: (file: File) => Promise<Partial<FormPolicy>>
  /**
   * Called with only the changed part, because two changes may come before the page renders again.
   */
  readonly onChange: (part: Partial<FormPolicy>) => void
}) {
  return (
    <>
      <p>
        Without a policy this page can show that the parts of the evidence match, but not that the
        right code made it. Get your policy from a source that you trust, never from the sender of
        the evidence.
      </p>
      <FillFromFile readFile={readFile} onFill={set} />
      <fieldset>
        <legend>Code</legend>
        <FilesField
          label="Signed releases"
          hint="measurements.json of a release, or the operator’s releases.json"
          files={given.releases}
          onFiles={(releases) => set({ releases })}
        />
        <TextField
          label="Keys that sign releases"
          hint="64 hex digits each, on separate lines"
          rows={2}
          value={given.releaseKeys}
          onValue={(releaseKeys) => set({ releaseKeys })}
        />
        <TextField
          label="How many of them must have signed"
          hint="Empty: one"
          inputMode="numeric"
          value={given.releaseSigners}
          onValue={(releaseSigners) => set({ releaseSigners })}
        />
        <TextField
          label="Or measurements"
          hint="PCR0=…, PCR1=…, PCR2=…, on separate lines; every given value must match. An empty line separates sets: one of the sets must match."
          rows={3}
          value={given.measurements}
          onValue={(measurements) => set({ measurements })}
        />
        <Tick
          label="Accept any code in the enclave"
          isTicked={given.anyMeasurement}
          onTick={(anyMeasurement) => set({ anyMeasurement })}
        />
        <Tick
          label="Accept an enclave in debug mode, whose memory its host can read"
          isTicked={given.allowDebug}
          onTick={(allowDebug) => set({ allowDebug })}
        />
      </fieldset>
      <fieldset>
        <legend>Boot configuration</legend>
        <TextField
          label="Digests"
          hint="SHA-256 of the configuration, 64 hex digits, each on a separate line. A release may already name its configuration."
          rows={2}
          value={given.configurations}
          onValue={(configurations) => set({ configurations })}
        />
        <FilesField
          label="Or the configuration itself"
          hint="As JSON; do not take it from the gateway"
          files={given.configurationFiles}
          onFiles={(configurationFiles) => set({ configurationFiles })}
        />
      </fieldset>
      <fieldset>
        <legend>Roots</legend>
        <FilesField
          label="Trust these roots, instead of AWS’s"
          hint="PEM or DER. The root of a development enclave is DATA_DIR/nsm/root.crt.pem"
          files={given.roots}
          onFiles={(roots) => set({ roots })}
        />
        <TextField
          label="Or as text"
          hint="PEM, or one SHA-256 of a certificate (64 hex digits) in each line"
          rows={2}
          placeholder="-----BEGIN CERTIFICATE-----"
          value={given.rootText}
          onValue={(rootText) => set({ rootText })}
        />
        <FilesField
          label="Certificate revocation lists"
          hint="DER or PEM; each from an issuer of the document’s certificates"
          files={given.revocationLists}
          onFiles={(revocationLists) => set({ revocationLists })}
        />
      </fieldset>
      <fieldset>
        <legend>Providers</legend>
        <TextField
          label="Providers in TEEs"
          hint="The “providers” of policy.json. Empty: not checked"
          rows={3}
          value={given.providers}
          onValue={(providers) => set({ providers })}
        />
      </fieldset>
      <fieldset>
        <legend>Answers that were cut</legend>
        {(['client_disconnected', 'upstream_error'] as const).map((outcome) => (
          <Tick
            key={outcome}
            label={
              <>
                Accept answers that ended as <code>{outcome}</code>
              </>
            }
            isTicked={given.outcomes.includes(outcome)}
            onTick={(isTicked) =>
              set({
                outcomes: isTicked
                  ? [...given.outcomes, outcome]
                  : given.outcomes.filter((one) => one !== outcome),
              })
            }
          />
        ))}
      </fieldset>
      <DocumentFields given={given} set={set} />
    </>
  )
}

/** Fills form fields from a file, so that the reader sees what the policy contains. */
function FillFromFile({
  readFile,
  onFill,
}: {
  readonly readFile: (file: File) => Promise<Partial<FormPolicy>>
  readonly onFill: (part: Partial<FormPolicy>) => void
}) {
  const [files, setFiles] = useState<readonly File[]>([])
  const [fault, setFault] = useState<unknown>(null)
  const take = async (given: readonly File[]) => {
    setFiles(given)
    setFault(null)
    const [file] = given
    if (file === undefined) return
    try {
      onFill(await readFile(file))
    } catch (thrown) {
      setFault(thrown)
    }
  }
  return (
    <>
      <FilesField
        label="Policy (policy.json)"
        hint="From your vendor; or measurements as JSON. A development gateway writes DATA_DIR/policy.json."
        isMultiple={false}
        files={files}
        onFiles={(given) => void take(given)}
      />
      {fault !== null && (
        <FaultNotice fault={fault}>
          {fault instanceof PolicyFault ? fault.advice : 'Give another file.'}
        </FaultNotice>
      )}
    </>
  )
}

function DocumentFields({
  given,
  set,
}: {
  readonly given: FormPolicy
  readonly set: (part: Partial<FormPolicy>) => void
}) {
  const id = useId()
  return (
    <fieldset>
      <legend>For an attestation document alone</legend>
      <div class="field">
        <label for={id}>When it must be valid</label>
        <select
          id={id}
          value={given.time}
          onChange={({ currentTarget }) => set({ time: currentTarget.value as FormPolicy['time'] })}
        >
          <option value="now">now</option>
          <option value="own">at its own time, for old documents</option>
          <option value="given">at a time that I give</option>
        </select>
      </div>
      {given.time === 'given' && (
        <TextField
          label="That time"
          hint="Such as 2026-11-21T14:00:00Z, or seconds since 1970"
          value={given.at}
          onValue={(at) => set({ at })}
        />
      )}
      <TextField
        label="Its greatest age in seconds"
        hint="Empty: three hours"
        inputMode="numeric"
        value={given.maxAge}
        onValue={(maxAge) => set({ maxAge })}
      />
      <TextField
        label="Nonce"
        hint="Hex; 0x for a nonce without bytes; empty: not checked"
        value={given.nonce}
        onValue={(nonce) => set({ nonce })}
      />
    </fieldset>
  )
}
