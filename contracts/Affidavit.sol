// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Affidavit
/// @notice Fixes signed tree heads of append-only logs in time. A notary (the signing account of an enclave) signs
/// the head of its log off chain; anyone may bring that head here and pay for it. The block that holds the call bounds
/// from above when the head, and so every leaf under it, existed.
/// @dev No owner, no upgrade, no value, no calls to other contracts but the precompiles 1 (ecrecover) and 2 (sha256).
/// Trees are those of RFC 9162 section 2.1 with SHA-256: leaf = SHA-256(0x00 || data), node = SHA-256(0x01 || l || r).
///
/// What this contract does not establish:
/// - that a notary is an enclave. Any account is a notary here; the attestation document says which code holds its key.
/// - that the heads of one notary are consistent. It only notices two roots of the size that is kept at the moment
///   (see `Equivocation`); auditors compare all `Anchored` events of a notary by consistency proofs.
contract Affidavit {
    /// @notice The newest head of one notary. `size` 0 means that none is kept.
    struct Head {
        uint64 size;
        bytes32 root;
    }

    /// @notice A head signed by `notary` was brought here. Emitted for every accepted call, repeated and outdated heads
    /// included, so that each anchor can be found by its own transaction.
    event Anchored(address indexed notary, uint64 indexed size, bytes32 root);

    /// @notice `notary` signed two roots for the same `size`: proof that it runs more than one log under one key.
    /// `kept` stays its newest head; `other` is the root of this call's head.
    event Equivocation(address indexed notary, uint64 indexed size, bytes32 kept, bytes32 other);

    /// @notice The signature is not 65 bytes.
    error SignatureLength(uint256 length);
    /// @notice `s` is in the upper half of the group order. EIP-2 form is required, so that no stranger can turn one
    /// signature into a second.
    error SignatureS(bytes32 s);
    /// @notice `v` is neither 27 nor 28.
    error SignatureV(uint8 v);
    /// @notice No public key recovers from the signature.
    error SignatureSigner();

    /// @dev Half the order of secp256k1, rounded down (SEC 2, section 2.4.1; EIP-2).
    uint256 private constant S_MAX = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0;

    bytes32 private constant DOMAIN_TYPE =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant TREE_HEAD_TYPE = keccak256("TreeHead(uint64 size,bytes32 root)");
    bytes32 private constant NAME = keccak256("Affidavit");
    bytes32 private constant VERSION = keccak256("1");

    mapping(address notary => Head) private heads;

    /// @notice Anchors a tree head. Never reverts on a head that its notary signed for this chain and contract in the
    /// form below: an older, equal or repeated size is accepted and leaves the kept head as it is.
    /// @dev Any other bytes of the right form recover some other account, whose head it then is: harmless, since
    /// nobody holds that account's key or attestation.
    /// @param size Number of leaves under the head.
    /// @param root Root over the first `size` leaves.
    /// @param signature r || s || v, 65 bytes, by the notary over `treeHeadDigest(size, root)`; s in the lower half, v 27
    /// or 28.
    function anchor(uint64 size, bytes32 root, bytes calldata signature) external {
        address notary = recoverSigner(treeHeadDigest(size, root), signature);
        Head storage kept = heads[notary];
        uint64 keptSize = kept.size;
        if (size > keptSize) {
            kept.size = size;
            kept.root = root;
        } else if (size == keptSize && size != 0 && root != kept.root) {
            emit Equivocation(notary, size, kept.root, root);
        }
        emit Anchored(notary, size, root);
    }

    /// @notice The head of `notary` with the largest size anchored so far; size 0 and root 0 when there is none.
    function newestHead(address notary) external view returns (uint64 size, bytes32 root) {
        Head storage kept = heads[notary];
        return (kept.size, kept.root);
    }

    /// @notice Whether a leaf is under the newest head of `notary`. Never true for a notary without a head.
    /// @dev A path is for one tree size, so a path made for an older head is refused here: check it with
    /// `verifyInclusion` against that head.
    /// @param leafHash As in `verifyInclusion`.
    /// @param index Zero-based index of the leaf.
    /// @param path Inclusion path for the newest head's size.
    function verifyAnchored(address notary, bytes32 leafHash, uint64 index, bytes32[] calldata path)
        external
        view
        returns (bool)
    {
        Head storage kept = heads[notary];
        return verifyInclusion(leafHash, index, kept.size, kept.root, path);
    }

    /// @notice Whether a leaf is in the tree of this size and root (RFC 9162 section 2.1.3.2). Says nothing of who
    /// signed that root, or whether it was anchored.
    /// @param leafHash SHA-256(0x00 || data). The caller must have hashed the data itself: a hash taken from a stranger
    /// proves nothing about data.
    /// @param index Zero-based index of the leaf; false unless below `size`.
    /// @param size Number of leaves of the tree.
    /// @param path Sibling hashes from the leaf up.
    function verifyInclusion(bytes32 leafHash, uint64 index, uint64 size, bytes32 root, bytes32[] calldata path)
        public
        pure
        returns (bool)
    {
        if (index >= size) return false;
        uint64 position = index;
        uint64 last = size - 1;
        bytes32 hash = leafHash;
        for (uint256 i = 0; i < path.length; i++) {
            if (last == 0) return false; // longer than the tree is high
            if (position & 1 == 1 || position == last) {
                hash = hashChildren(path[i], hash);
                // A right edge has no sibling on some levels: go up to the first one where it is a right child.
                while (position & 1 == 0 && position != 0) {
                    position >>= 1;
                    last >>= 1;
                }
            } else {
                hash = hashChildren(hash, path[i]);
            }
            position >>= 1;
            last >>= 1;
        }
        return last == 0 && hash == root;
    }

    /// @notice The 32 bytes a notary signs: EIP-712 digest of TreeHead(uint64 size, bytes32 root) in the domain
    /// { name "Affidavit", version "1", chainId, verifyingContract }.
    /// @dev The chain id is read at each call, so after a fork of the chain a head of one side is no head of the other.
    function treeHeadDigest(uint64 size, bytes32 root) public view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(DOMAIN_TYPE, NAME, VERSION, block.chainid, address(this)));
        return keccak256(abi.encodePacked(hex"1901", domain, keccak256(abi.encode(TREE_HEAD_TYPE, size, root))));
    }

    /// @dev Strict form of ecrecover: each malformed part has its own error, and never the zero address.
    function recoverSigner(bytes32 digest, bytes calldata signature) private pure returns (address signer) {
        if (signature.length != 65) revert SignatureLength(signature.length);
        bytes32 r = bytes32(signature[0:32]);
        bytes32 s = bytes32(signature[32:64]);
        uint8 v = uint8(signature[64]);
        if (uint256(s) > S_MAX) revert SignatureS(s);
        if (v != 27 && v != 28) revert SignatureV(v);
        signer = ecrecover(digest, v, r, s);
        if (signer == address(0)) revert SignatureSigner();
    }

    /// @dev RFC 9162 section 2.1.1: interior node.
    function hashChildren(bytes32 left, bytes32 right) private pure returns (bytes32) {
        return sha256(abi.encodePacked(bytes1(0x01), left, right));
    }
}
