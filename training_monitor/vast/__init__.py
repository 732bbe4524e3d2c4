"""The account, the offers and the instances of vast.ai."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.vast.account import *
    from training_monitor.vast.cost import *
    from training_monitor.vast.instances import *
    from training_monitor.vast.offers import *
    from training_monitor.vast.rent import *
    from training_monitor.vast.training_request import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "vast.account": "account_balance check_ssh_keys list_ssh_keys setup_ssh_key",
        "vast.cost": "estimate_cost forecast_burn",
        "vast.instances": (
            "Destruction destroy_instance find_instance list_instances list_instances_at_once show_instance "
            "stop_instance wait_until_ready"
        ),
        "vast.offers": "Offer OfferQuery load_offer_query search_offers",
        "vast.rent": "rent_instance",
        "vast.training_request": "Rental",
    },
)
